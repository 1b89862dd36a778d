"""How much CPU time it takes to say which of 50,000 URLs 30 agents may fetch by 483 rules.

python -m bench.policies
"""

from __future__ import annotations

import random
import time

from siteatlas.findings.policies import Policy, known_agents

URLS, RULES, AGENTS = 50_000, 483, 30
SYLLABLES = [first + second for first in "bdfgklmnprstv" for second in "aeiou"]


def robots_text(rules: list[str], layout: str) -> str:
    """The rules in one group for all, the same for each agent, or parts of them for each."""
    if layout == "one group":
        return "\n".join(["User-agent: *", *rules])
    agents = known_agents().agents[:AGENTS]
    lines: list[str] = []
    for place, agent in enumerate(agents):
        own = rules[place :: len(agents)] if layout == "own parts" else rules
        lines += [f"User-agent: {agent.name}", *own]
    return "\n".join(lines)


def main() -> None:
    """Print one line for each layout of the file."""
    chance = random.Random(9309)
    words = ["".join(chance.choices(SYLLABLES, k=3)) for _ in range(400)]
    rules = [
        f"{chance.choice(('Allow', 'Disallow', 'Disallow'))}: "
        + chance.choice(("/{0}/{1}/", "/{0}/", "/*/{0}-{1}", "/{0}/*.html$", "/*?{0}={1}")).format(
            *chance.choices(words, k=2)
        )
        for _ in range(RULES)
    ]
    paths = [
        f"/{'/'.join(chance.choices(words, k=3))}/page-{number}.html" for number in range(URLS)
    ]
    for layout in ("one group", "own copies", "own parts"):
        text = robots_text(rules, layout)
        started = time.process_time()
        found = Policy(text).rules_for(known_agents().agents[:AGENTS], paths)
        seconds = time.process_time() - started
        barred = sum(rule is not None and not rule.allow for rule in found["Googlebot"])
        print(f"{layout}: {seconds:.2f} s, {barred:,} URLs disallowed for the first agent")


if __name__ == "__main__":
    main()

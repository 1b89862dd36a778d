"""`siteatlas lint`: formats, what counts, configuration and baseline, without a process.

The schema of SARIF is not part of this repository: what it and its consumers require of the members
that are written is checked by hand.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from siteatlas.cli.lint.choice import (
    Choice,
    FailOn,
    MinSeverity,
    baseline_of,
    read_configuration,
    without_baseline,
)
from siteatlas.cli.lint.output import (
    MAX_ANNOTATIONS,
    LintFormat,
    LintReport,
    encoded,
    ordered,
    parsed_formats,
    summary_of,
    summary_table,
)
from siteatlas.cli.lint.reading import Linted, Network, divided, lint_all
from siteatlas.errors import ConfigurationError, InputError
from siteatlas.findings.judging import Finding, Sample
from siteatlas.findings.rules import all_rules
from siteatlas.settings import Settings, load_settings
from tests.findings.cases import CASES, SITE, around, page, pages_of

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
FAULTY = around(
    page("/a") + page("/b") + page(f"{SITE}/c#d", "\n<lastmod>2099-01-01</lastmod>") + pages_of(2)
)


@pytest.fixture
async def report(tmp_path: Path, monkeypatch) -> LintReport:
    """What lint says about one document in the folder `public`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "sitemap.xml").write_text(FAULTY)
    return await report_of("public")


async def report_of(*targets: str, root: str = "") -> LintReport:
    linted = await lint_all(list(targets), NOW, Network(Settings))
    return LintReport(linted, list(ordered(linted.findings)), root, targets)


def written(report: LintReport, form: str) -> str:
    return encoded(LintFormat(form), report).decode()


async def test_text_is_a_line_for_each_finding_with_its_place(report: LintReport):
    assert written(report, "text").splitlines() == [
        'public/sitemap.xml:3:11: error url-relative: Not an absolute URL: "/a" (+1 more)',
        f'public/sitemap.xml:5:11: warning url-fragment: A fragment in a URL: "{SITE}/c#d"',
        'public/sitemap.xml:6:10: warning lastmod-future: A `lastmod` in the future: "2099-01-01"',
    ]


async def test_full_also_says_why_and_how_to_fix_it_with_all_samples(report: LintReport):
    text = written(report, "full")
    rule = all_rules()["url-relative"]
    for part in (rule.why, rule.fix, "3:11  /a", "4:11  /b"):
        assert part in text


async def test_json_has_findings_documents_and_what_was_not_read(report: LintReport):
    report.linted.unread.append(("b.xml", "No such file."))
    data = json.loads(written(report, "json"))
    assert (data["documents"], len(data["findings"])) == (1, 3)
    assert data["unread"] == [{"document": "b.xml", "reason": "No such file."}]
    first = data["findings"][0]
    assert (first["rule"], first["severity"], first["count"]) == ("url-relative", "error", 2)
    assert first["samples"][1] == {"url": "/b", "value": None, "line": 4, "column": 11}


async def test_json_lines_are_the_findings_alone(report: LintReport):
    lines = [json.loads(line) for line in written(report, "jsonl").splitlines()]
    assert lines == json.loads(written(report, "json"))["findings"]


async def test_annotations_show_the_worst_first_and_count_the_rest():
    findings = [Finding("url-fragment", f"{n}.xml", 1) for n in range(MAX_ANNOTATIONS + 3)]
    findings.append(Finding("url-relative", "a,b.xml", 1, (Sample("/100%\n", None, 0, 7, 3),)))
    lines = written(LintReport(Linted(), findings), "github").splitlines()
    assert lines[0] == (
        '::error file=a%2Cb.xml,line=7,col=3,title=url-relative::Not an absolute URL: "/100%25%0A"'
    )
    assert lines[-1] == "::warning::and 3 more of this severity"
    assert len(lines) == 1 + MAX_ANNOTATIONS + 1


async def test_a_summary_counts_and_lists_the_findings(report: LintReport):
    assert summary_of(report) == "1 error, 2 warnings in 1 document."
    table = summary_table(report).decode()
    assert "| error | `url-relative` | public/sitemap.xml | 2 |" in table
    assert summary_of(LintReport(Linted(), [])) == "No findings in 0 documents."


def check_sarif(log: dict[str, Any]) -> list[dict[str, Any]]:
    """The results, after a check of all that the standard and code scanning require."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    assert run["automationDetails"]["id"].startswith("siteatlas/")
    assert run["automationDetails"]["id"].endswith("/")
    assert run["columnKind"] == "unicodeCodePoints"
    assert set(run) == {"tool", "automationDetails", "columnKind", "results"}
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert set(driver) == {"name", "semanticVersion", "rules"}
    for rule in driver["rules"]:
        texts = [rule[name]["text"] for name in ("shortDescription", "fullDescription", "help")]
        assert all(0 < len(text) <= 1024 for text in texts)
        assert rule["defaultConfiguration"]["level"] in {"note", "warning", "error"}
        assert len(rule["properties"]["tags"]) <= 10
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    members = {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"}
    for result in run["results"]:
        assert set(result) == members
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri
        assert not uri.startswith(("/", "http", "file", ".."))
        assert " " not in uri
        region = location["physicalLocation"]["region"]
        assert region["startLine"] == region["endLine"] >= 1
        assert 1 <= region["startColumn"] < region["endColumn"]
        assert list(result["partialFingerprints"]) == ["primaryLocationLineHash"]
    keys = [
        (r["ruleId"], r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for r in run["results"]
    ]
    assert len(set(keys)) == len(keys)
    return list(run["results"])


async def test_sarif_has_all_that_the_standard_and_code_scanning_require(report: LintReport):
    results = check_sarif(json.loads(written(report, "sarif")))
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3, "startColumn": 11, "endLine": 3, "endColumn": 13}


async def test_sarif_of_a_document_without_places_has_a_location_too(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a b.xml").write_text(around(""))
    (result,) = check_sarif(json.loads(written(await report_of("./a b.xml"), "sarif")))
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.xml"
    assert place["region"]["startLine"] == 1


def test_sarif_maps_the_paths_of_a_site_to_files():
    findings = [Finding("sitemap-orphan", "https://a.example/maps/sitemap.xml?x=1", 1)]
    report = LintReport(Linted(), findings, "public/", ["https://a.example"])
    log = json.loads(written(report, "sarif"))
    (result,) = check_sarif(log)
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "public/maps/sitemap.xml"
    assert log["runs"][0]["automationDetails"]["id"] == "siteatlas/a.example/"


def test_sarif_without_findings_is_valid():
    assert check_sarif(json.loads(written(LintReport(Linted(), []), "sarif"))) == []


# Each kind of sample and place: of a URL, of markup, of lines of robots.txt, of the whole document.
SARIF_CASES = (
    *("url-fragment", "url-not-escaped", "element-misplaced", "attribute-missing", "xml-version"),
    *("forbidden-character", "url-control-character", "robots-sitemap-not-absolute", "url-twice"),
    *("sitemap-empty-response", "hreflang-no-return", "gzip-corrupt", "encoding-lie"),
)


@pytest.mark.parametrize("code", SARIF_CASES)
async def test_sarif_of_every_kind_of_finding_is_the_same_each_time(
    code: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, data in CASES[code].fault.items():
        Path(name).write_bytes(data)
    logs = [written(await report_of(*CASES[code].fault), "sarif") for _ in range(2)]
    assert logs[0] == logs[1]
    assert code in {result["ruleId"] for result in check_sarif(json.loads(logs[0]))}


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        pytest.param("a.xml", str.encode, id="LF"),
        pytest.param("a.xml", lambda text: text.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param("a.xml", lambda text: b"\xef\xbb\xbf" + text.encode(), id="BOM"),
        pytest.param("a.xml", lambda text: text.encode("utf-16"), id="UTF-16"),
        pytest.param("a.xml", lambda text: gzip.compress(text.encode()), id="gzip"),
    ],
)
async def test_regions_and_fingerprints_of_sarif_do_not_depend_on_the_bytes(
    name: str, encode: Callable[[str], bytes], tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = around(page(f"{SITE}/é/😀#d")).replace(' encoding="UTF-8"', "")
    Path(name).write_bytes(encode(text))
    results = check_sarif(json.loads(written(await report_of(name), "sarif")))
    found = {result["ruleId"]: result for result in results}["url-fragment"]
    # Columns count code points, so the emoji is one.
    assert found["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 3,
        "startColumn": 11,
        "endLine": 3,
        "endColumn": 11 + len(f"{SITE}/é/😀#d"),
    }
    finding = Finding("url-fragment", name, 1, (Sample(f"{SITE}/é/😀#d"),))
    expected = {"primaryLocationLineHash": f"{finding.fingerprint}:1"}
    assert found["partialFingerprints"] == expected


async def test_in_a_document_of_one_line_the_region_is_told_by_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = around(page() + page(f"{SITE}/c#d")).replace("\n", "")
    Path("a.xml").write_text(text)
    (result,) = check_sarif(json.loads(written(await report_of("a.xml"), "sarif")))
    region = result["locations"][0]["physicalLocation"]["region"]
    start = text.index(f"{SITE}/c#d") + 1
    assert (region["startLine"], region["startColumn"]) == (1, start)
    assert region["endColumn"] == start + len(f"{SITE}/c#d")


async def test_the_same_file_has_equal_fingerprints_each_time(report: LintReport):
    again = await report_of("public")
    assert [one.fingerprint for one in again.findings] == [
        one.fingerprint for one in report.findings
    ]


def test_several_formats_go_to_files_and_one_to_stdout():
    assert parsed_formats(["text", "sarif=a.sarif"]) == [
        (LintFormat.TEXT, None),
        (LintFormat.SARIF, Path("a.sarif")),
    ]
    for texts in (["text", "json"], ["xml"], ["=a"]):
        with pytest.raises(InputError):
            parsed_formats(texts)


def shown(choice: Choice, report: LintReport) -> list[str]:
    return [finding.code for finding in report.findings if choice.keeps(finding)]


async def test_rules_are_selected_and_ignored_by_their_codes(report: LintReport):
    assert shown(Choice(), report) == ["url-relative", "url-fragment", "lastmod-future"]
    assert shown(Choice().with_options("relative_url", None), report) == ["url-relative"]
    assert shown(Choice().with_options(None, "url-relative, url-fragment"), report) == [
        "lastmod-future"
    ]
    only_errors = Choice().with_options(None, None, min_severity=MinSeverity.ERROR)
    assert shown(only_errors, report) == ["url-relative"]
    with pytest.raises(ConfigurationError, match="--select: there is no rule 'url-wrong'"):
        Choice().with_options("url-wrong", None)


async def test_what_fails_is_chosen_by_severity(report: LintReport):
    failing = {
        fail_on: sum(map(Choice(fail_on=fail_on).is_failure, report.findings)) for fail_on in FailOn
    }
    assert failing == {FailOn.ERROR: 1, FailOn.WARNING: 3, FailOn.NEVER: 0}


CONFIGURATION = """
ignore = ["lastmod-future"]
min-severity = "warning"
fail-on = "never"
baseline = "known.json"
per-path-ignores = { "public/*" = ["url-relative"] }
"""


@pytest.mark.parametrize(
    ("name", "heading"),
    [("pyproject.toml", "[tool.siteatlas.lint]"), ("siteatlas.toml", "[lint]")],
)
async def test_the_configuration_is_read_from_one_of_two_files(
    report: LintReport, name: str, heading: str
):
    Path(name).write_text(heading + CONFIGURATION)
    choice = read_configuration()
    assert (choice.fail_on, choice.baseline) == (FailOn.NEVER, Path("known.json"))
    assert shown(choice, report) == ["url-fragment"]
    with_options = choice.with_options(None, "url-fragment", fail_on=FailOn.ERROR)
    assert with_options.fail_on is FailOn.ERROR
    assert shown(with_options, report) == []


def test_the_settings_of_the_program_leave_the_table_of_lint_alone(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("siteatlas.toml").write_text('log_level = "error"\n[lint]\nignore = []')
    assert load_settings().settings.log_level == "error"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('ignore = ["url-wrong"]', "no rule 'url-wrong'"),
        ('fail-on = "sometimes"', "sometimes"),
        ('colour = "red"', "unknown settings: colour"),
        ("select = 3", "lint"),
        ("per-path-ignores = []", "lint"),
        ("select = [", "TOML"),
    ],
)
def test_a_configuration_that_nobody_understands_is_refused(
    line: str, message: str, tmp_path: Path
):
    (tmp_path / "pyproject.toml").write_text(f"[tool.siteatlas.lint]\n{line}")
    with pytest.raises(ConfigurationError, match=message):
        read_configuration(tmp_path)


def test_without_a_table_everything_counts(tmp_path: Path):
    assert read_configuration(tmp_path) == Choice()
    (tmp_path / "siteatlas.toml").write_text('log_level = "error"')
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert read_configuration(tmp_path) == Choice()


async def test_a_baseline_accepts_what_is_known_until_there_is_more(report: LintReport):
    file = Path("known.json")
    file.write_bytes(baseline_of(report.findings))
    rows = json.loads(file.read_bytes())
    assert [row["rule"] for row in rows] == ["lastmod-future", "url-fragment", "url-relative"]
    assert without_baseline(report.findings, file) == ([], [])
    more = Path("public/sitemap.xml")
    more.write_text(FAULTY.replace("</urlset>", page("/e") + "</urlset>").replace("/c#d", "/c"))
    kept, gone = without_baseline((await report_of("public")).findings, file)
    assert [(one.code, one.count) for one in kept] == [("url-relative", 3)]
    assert gone == ["url-fragment in public/sitemap.xml"]


async def test_the_first_sample_may_be_repaired_without_a_new_baseline(report: LintReport):
    Path("known.json").write_bytes(baseline_of(report.findings))
    Path("public/sitemap.xml").write_text(FAULTY.replace("<loc>/a<", f"<loc>{SITE}/a<"))
    kept, gone = without_baseline((await report_of("public")).findings, Path("known.json"))
    assert (kept, gone) == ([], [])


@pytest.mark.parametrize(
    "text", ["", "[1]", '[{"rule": "url-wrong", "document": "a", "count": 1}]']
)
def test_a_baseline_that_cannot_be_read_is_refused(text: str, tmp_path: Path):
    (tmp_path / "known.json").write_text(text)
    with pytest.raises(InputError, match="baseline"):
        without_baseline([], tmp_path / "known.json")


def test_targets_are_files_folders_and_sites(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "public" / "deep").mkdir(parents=True)
    for name in ("robots.txt", "sitemap-2.txt", "deep/pages.xml"):
        (tmp_path / "public" / name).write_text(around(""))
    (tmp_path / "public" / "feed.xml").write_text("<rss/>")
    (tmp_path / "public" / "list.txt").write_text("https://a.example/")
    files, sites = divided(["public", "a.example", "https://a.example/s.xml", "gone.xml", "-"])
    assert [file.as_posix() for file in files] == [
        "public/deep/pages.xml",
        "public/robots.txt",
        "public/sitemap-2.txt",
        "gone.xml",
    ]
    assert sites == ["a.example", "https://a.example/s.xml"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no sitemap"):
        divided(["empty"])


async def test_a_file_that_is_missing_is_not_a_clean_one(tmp_path: Path):
    linted = await lint_all([str(tmp_path / "gone.xml")], NOW, Network(Settings))
    assert [name for name, _ in linted.unread] == [f"{tmp_path}/gone.xml"]
    assert linted.documents == 0

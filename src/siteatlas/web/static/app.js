// What the pages need besides htmx: theme, live switch, keys, dialog, times. No page depends on it.
(() => {
  "use strict";
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private mode */ } },
  };

  // Theme: follows the system until a person chooses.
  const THEMES = ["auto", "light", "dark"];
  const applyTheme = (theme) => {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.dataset.theme = theme;
    const button = one("[data-theme-button]");
    if (button) button.textContent = `Theme: ${theme}`;
  };
  let theme = store.get("theme") || "auto";
  const nextTheme = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    store.set("theme", theme);
    applyTheme(theme);
  };

  // Live updates: panels refetch themselves when the stream says that something changed.
  let paused = store.get("live") === "paused";
  const LIVE_WORDS = { live: "Live", paused: "Paused", lost: "Reconnecting" };
  const showLive = (state) => {
    const dot = one("[data-live]");
    if (!dot) return;
    dot.dataset.state = state;
    dot.textContent = LIVE_WORDS[state];
    dot.setAttribute("aria-pressed", String(state === "paused"));
  };
  const toggleLive = () => {
    paused = !paused;
    store.set("live", paused ? "paused" : "on");
    showLive(paused ? "paused" : "live");
    if (!paused) window.htmx?.trigger("#live", "changed");
  };
  document.addEventListener("htmx:sse:after:connection", () => {
    if (!paused) showLive("live");
  });
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) {
    document.addEventListener(name, () => { if (!paused) showLive("lost"); });
  }
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (paused) event.preventDefault();
  });

  // Times: relative words that stay true while the page is open.
  const UNITS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600],
    ["minute", 60], ["second", 1]];
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const relative = (seconds) => {
    const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) || UNITS.at(-1);
    return words.format(Math.round(seconds / size), unit);
  };
  const tick = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-relative]")) {
      time.textContent = relative((Date.parse(time.dateTime) - now) / 1000);
    }
    for (const time of document.querySelectorAll("time[data-elapsed]")) {
      const seconds = Math.max(0, Math.floor((now - Date.parse(time.dateTime)) / 1000));
      const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
      time.textContent = parts.map((part) => String(part).padStart(2, "0")).join(":");
    }
  };

  // Large charts of values over time, drawn by uPlot from the table behind each of them.
  const drawCharts = () => {
    for (const figure of document.querySelectorAll("[data-timechart]:not([data-drawn])")) {
      if (!window.uPlot) return;
      figure.dataset.drawn = "";
      const rows = [...figure.querySelectorAll("tbody tr")];
      const x = rows.map((row) => Date.parse(one("time", row).dateTime) / 1000);
      const y = rows.map((row) => Number(row.lastElementChild.dataset.value));
      const box = one(".timechart", figure);
      const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
        ticks: { stroke: colour("--line") } };
      const size = () => ({ width: box.clientWidth, height: 240 });
      const plot = new window.uPlot({
        ...size(),
        legend: { show: true, live: true },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.1)] } },
        axes: [axis, { ...axis, size: 72,
          values: (_plot, ticks) => ticks.map((each) => each.toLocaleString("en")) }],
        series: [{}, { label: figure.dataset.timechart, stroke: colour("--accent"), width: 1.5,
          fill: `${colour("--accent")}22`, points: { show: true, size: 6 },
          value: (_plot, value) => (value == null ? "" : value.toLocaleString("en")) }],
      }, [x, y], box);
      new ResizeObserver(() => plot.setSize(size())).observe(box);
    }
  };

  // Dialog to scan a site; without JavaScript the button is a link to a page with the same form.
  const openScan = () => {
    const dialog = one("#scan-dialog");
    if (!dialog) return false;
    dialog.showModal();
    one("input, textarea", dialog)?.focus();
    return true;
  };

  const GO = { o: "/", d: "/domains", c: "/changes", p: "/problems", j: "/jobs", s: "/system" };
  let waitingForPlace = false;
  const keys = {
    "/": () => one("#search")?.focus(),
    s: openScan,
    r: toggleLive,
    t: nextTheme,
    "?": () => one("#keys-dialog")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (waitingForPlace) {
      waitingForPlace = false;
      if (GO[event.key]) location.assign(GO[event.key]);
      return;
    }
    if (event.key === "g") { waitingForPlace = true; return; }
    if (event.key === "Escape") { one("[data-clear-filters]")?.click(); return; }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest?.(selector);
    if (on("[data-theme-button]")) nextTheme();
    else if (on("[data-live]")) toggleLive();
    else if (on("[data-scan]") && openScan()) event.preventDefault();
    else if (on("[data-close]")) on("dialog")?.close();
    else if (on("[data-copy]")) navigator.clipboard?.writeText(on("[data-copy]").dataset.copy);
    const all = on("[data-select-all]");
    if (all) for (const box of document.querySelectorAll("input[data-select]")) box.checked = all.checked;
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-submit]")) event.target.form?.requestSubmit();
  });
  document.addEventListener("htmx:after:swap", () => { tick(); drawCharts(); });

  const start = () => {
    applyTheme(theme);
    showLive(paused ? "paused" : "lost");
    tick();
    drawCharts();
    setInterval(tick, 1000);
  };
  applyTheme(theme);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();

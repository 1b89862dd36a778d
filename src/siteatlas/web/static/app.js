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
    const name = one("[data-theme-name]");
    if (name) name.textContent = theme;
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
  // Opened here, once all scripts have run: htmx may start before its extension is loaded. A stream
  // that ends is opened again by the extension; one that never began is tried again here.
  let streaming = false;
  let opening = false;
  const RETRY_MS = 5000;
  document.addEventListener("htmx:sse:after:connection", () => {
    streaming = true;
    if (!paused) showLive("live");
  });
  for (const name of ["htmx:sse:before:connection", "htmx:sse:error", "htmx:sse:close"]) {
    document.addEventListener(name, () => { if (!paused) showLive("lost"); });
  }
  document.addEventListener("htmx:sse:before:connection", () => { streaming = true; });
  document.addEventListener("htmx:sse:close", () => { streaming = false; });
  const openStream = () => {
    const live = one("#live");
    if (!live || !window.htmx || streaming || opening || document.hidden) return;
    opening = true;
    const opened = window.htmx.ajax("GET", "/events", { source: live });
    opened.catch(() => {}).finally(() => { opening = false; });
  };
  document.addEventListener("hello", (event) => {
    const version = one("#live")?.dataset.version;
    if (version && event.detail.data !== version) showReload(event.detail.data);
  });
  const showReload = (version) => {
    const toasts = one("#toasts");
    if (!toasts || toasts.childElementCount) return;
    const toast = document.createElement("div");
    toast.className = "toast";
    toast.append(`Version ${version} is running now. `);
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Reload the page";
    toast.append(link);
    toasts.append(toast);
  };
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

  // Dialog to scan a site; without JavaScript the button is a link to a page with the same form.
  const openScan = () => {
    const dialog = one("#scan-dialog");
    if (!dialog) return false;
    dialog.showModal();
    one("input, textarea", dialog)?.focus();
    return true;
  };

  // Rows of lists: the focus goes to what opens the next or the previous one.
  const rowOf = (element) => element.closest("main tbody tr, main .items > li");
  const toRow = (by) => {
    const rows = [...document.querySelectorAll("main tbody tr, main .items > li")];
    const links = rows.map((row) => one("a[href], summary", row))
      .filter((link) => link?.checkVisibility());
    const place = links.findIndex((link) => rowOf(link) === rowOf(document.activeElement));
    links[place < 0 ? 0 : place + by]?.focus();
  };

  // Charts: the tab key leads to the last mark, from there these keys to the others.
  const MARKS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  const toMark = (event) => {
    const mark = event.target.closest?.("g.mark");
    const by = MARKS[event.key];
    if (!mark || !by) return;
    event.preventDefault();
    const marks = [...mark.parentElement.querySelectorAll(":scope > .mark")];
    marks[Math.max(0, Math.min(marks.length - 1, marks.indexOf(mark) + by))].focus();
  };

  let waitingForPlace = false;
  const openKeys = () => one("#keys-dialog")?.showModal();
  const keys = {
    "/": () => one("#search")?.focus(),
    s: openScan,
    r: toggleLive,
    t: nextTheme,
    "?": openKeys,
    j: () => toRow(1),
    k: () => toRow(-1),
    x: () => rowOf(document.activeElement)?.querySelector("input[type=checkbox]")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    toMark(event);
    // A dialog that was closed a moment ago may still have the focus; nobody types in a checkbox.
    const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog") &&
      !event.target.closest("dialog:not([open])");
    if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
    if (waitingForPlace) {
      waitingForPlace = false;
      const places = [...document.querySelectorAll(".rail li a")];
      places.find((link) => link.dataset.key === event.key)?.click();
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
    else if (on("[data-keys]")) openKeys();
    else if (on("[data-scan]") && openScan()) event.preventDefault();
    else if (on("[data-close]")) on("dialog")?.close();
    else if (on("[data-copy]")) navigator.clipboard?.writeText(on("[data-copy]").dataset.copy);
    const all = on("[data-select-all]");
    if (all) for (const box of document.querySelectorAll("input[data-select]")) box.checked = all.checked;
  });
  document.addEventListener("submit", (event) => {
    let question = event.submitter?.dataset.confirm;
    if (!question) return;
    const form = event.target;
    if ("counts" in event.submitter.dataset) {
      const count = form.querySelectorAll("[data-select]:checked").length;
      if (!count) return; // the server says what is missing
      question = question.replace("#", count);
    }
    if (!window.confirm(question)) { event.preventDefault(); return; }
    // Without it, the server asks.
    form.append(Object.assign(document.createElement("input"),
      { type: "hidden", name: "confirmed", value: "1" }));
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-submit]")) event.target.form?.requestSubmit();
  });
  // Lists that a person reads are not replaced under their eyes: a link says that there is more.
  const showNews = () => {
    const newest = Number(one("#new-mark")?.dataset.newest);
    const shown = Number(one("#publications")?.dataset.shown);
    const link = one("[data-news]");
    if (link) link.hidden = !(newest > shown);
  };
  // A table that is not wider than its box needs no scrolling of its own, so its head can stay.
  const fitTables = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      box.classList.toggle("fits", box.firstElementChild?.offsetWidth <= box.clientWidth);
    }
  };
  addEventListener("resize", fitTables);
  document.addEventListener("htmx:after:swap", () => { tick(); showNews(); fitTables(); });

  const start = () => {
    applyTheme(theme);
    showLive(paused ? "paused" : "lost");
    tick();
    fitTables();
    one(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    setInterval(tick, 1000);
    setTimeout(openStream);
    setInterval(openStream, RETRY_MS);
    document.addEventListener("visibilitychange", openStream);
  };
  applyTheme(theme);
  if (document.readyState === "complete") start();
  else document.addEventListener("DOMContentLoaded", start);
})();

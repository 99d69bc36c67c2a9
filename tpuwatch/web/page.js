"use strict";
// Keeps the page as the daemon would make it now: asks for it again and changes what differs, and nothing else. So what is
// focused, scrolled, opened, selected or typed stays. Without scripts the page is whole, too, and is loaded again.
(() => {
  const EVERY = 1000 * document.body.dataset.refresh; // milliseconds
  const PATIENCE = 10000; // for an answer
  const PAUSE = 120; // after a key, before what is typed is asked for
  let asked = null; // the request under way
  let timer = 0;

  async function update() {
    asked?.abort();
    clearTimeout(timer);
    if (document.hidden) return; // nobody looks; it is asked for again when somebody does
    const request = (asked = new AbortController());
    const late = setTimeout(() => request.abort("late"), PATIENCE);
    let why = "";
    try {
      const reply = await fetch(location.href, { signal: request.signal, cache: "no-store" });
      const text = await reply.text();
      if (asked !== request) return;
      if (reply.ok) show(new DOMParser().parseFromString(text, "text/html"));
      else why = `the answer is ${reply.status}`;
    } catch {
      if (asked !== request) return; // another request has taken its place
      why = "no answer";
    } finally {
      clearTimeout(late);
    }
    tellStale(why);
    timer = setTimeout(update, EVERY);
  }

  function show(fresh) {
    const focused = document.activeElement;
    if (document.title !== fresh.title) document.title = fresh.title;
    morph(document.getElementById("icon"), fresh.getElementById("icon"));
    morph(document.body, fresh.body);
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  }

  // The verdict on the page is not the present one: it says so, and does not look like one.
  function tellStale(why) {
    const stale = document.getElementById("stale");
    if (why === (stale.dataset.why ?? "")) return;
    stale.dataset.why = why;
    document.body.classList.toggle("stale", why !== "");
    stale.textContent = why && `Not known now: this page is as of ${stale.dataset.asOf} (${why}).`;
    if (why && !document.title.startsWith("? ")) document.title = `? ${document.title}`;
  }

  // Make `old` equal to `fresh`, and keep all of it that is equal already.
  function morph(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data && !isSelected(old)) old.data = fresh.data;
      return;
    }
    if (old.id === "stale") {
      old.dataset.asOf = fresh.dataset.asOf;
      return;
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const name of old.getAttributeNames()) {
      const isOurs = (name === "open" && old.localName === "details") || (name === "class" && old === document.body);
      if (!fresh.hasAttribute(name) && !isOurs) old.removeAttribute(name);
    }
    morphChildren(old, fresh);
    if ((old.localName === "input" || old.localName === "select") && old !== document.activeElement)
      old.value = old.localName === "input" ? (fresh.getAttribute("value") ?? "") : fresh.value;
  }

  // Children with a key are found wherever they are; the others in their order.
  function morphChildren(old, fresh) {
    const keys = new Set();
    for (const child of fresh.children) if (key(child)) keys.add(key(child));
    const kept = new Map();
    for (const child of [...old.children]) {
      if (!key(child)) continue;
      if (keys.has(key(child))) kept.set(key(child), child);
      else child.remove();
    }
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      if (child.localName === "script" || child.localName === "style") continue;
      let match = key(child) ? kept.get(key(child)) : at;
      while (match && !key(child) && !isAlike(match, child)) match = match.nextSibling;
      if (!match) {
        old.insertBefore(document.importNode(child, true), at);
        continue;
      }
      if (key(child) && match !== at) old.insertBefore(match, at);
      while (at && at !== match && !key(child)) {
        const gone = at;
        at = at.nextSibling;
        if (!key(gone) && gone.localName !== "script") gone.remove();
      }
      if (match === at) at = at.nextSibling;
      morph(match, child);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      if (gone.localName !== "script" && !keys.has(key(gone))) gone.remove();
    }
  }

  const key = (node) => node.dataset?.key || node.id || "";
  const isAlike = (one, other) => one.nodeName === other.nodeName && !key(one);

  function isSelected(node) {
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(node, true);
  }

  // What is asked for stands in the address, so that it can be kept, sent, and gone back to.
  function filter(form, remember) {
    const given = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) given.set(name, value);
    const target = `${location.pathname}${given.size ? `?${given}` : ""}`;
    if (target === location.pathname + location.search) return;
    history[remember ? "pushState" : "replaceState"](null, "", target);
    update();
  }

  let typed = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form) return;
    clearTimeout(typed);
    typed = setTimeout(() => filter(form, false), PAUSE);
  });
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typed);
    filter(event.target, true);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-live]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    history.pushState(null, "", link.pathname + link.search);
    update();
  });
  document.addEventListener("keydown", (event) => {
    const box = document.querySelector("input[type=search]");
    if (event.key !== "/" || !box || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    box.select();
  });
  addEventListener("popstate", update);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) update();
  });
  timer = setTimeout(update, EVERY);
})();

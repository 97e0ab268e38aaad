// Asks for the page again every second, shows what is new in it, and adds keys. The page works without this script, too.
(function () {
  "use strict";
  var every = 1000, patience = 10000; // ms: until the next question, and without an answer until the worker is taken for gone
  var notice = document.getElementById("notice"), form = document.getElementById("form");
  var status = document.getElementById("status"), search = document.getElementById("q"), order = document.getElementById("sort");
  var help = document.getElementById("help"), keys = document.getElementById("keys");
  var timer = 0, asked = null, typing = 0, failed = false, pressed = false;

  // address returns that of this page without a login, which fetch would refuse.
  function address() { return location.origin + location.pathname + location.search; }

  function show(text, look) {
    status.textContent = text;
    status.className = look;
  }

  function regions(page) { return Array.from(page.querySelectorAll("[data-live]")); }

  function put(place, nodes) { place.replaceChildren.apply(place, Array.from(nodes)); }

  // replace puts the new content in the place of the old, and keeps focus and scroll.
  function replace(page) {
    var active = document.activeElement, key = active && active.dataset.key;
    var x = scrollX, y = scrollY;
    regions(document).forEach(function (e) { put(e, page.getElementById(e.id).childNodes); });
    if (!used()) put(form, page.getElementById("form").childNodes);
    if (key) {
      var again = Array.from(document.querySelectorAll("[data-key]")).find(function (e) { return e.dataset.key === key; });
      if (again) again.focus({ preventScroll: true });
    }
    scrollTo(x, y);
  }

  function selecting() {
    var s = getSelection();
    return s && !s.isCollapsed && regions(document).some(function (e) { return e.contains(s.anchorNode); });
  }

  // A click on what is replaced between its press and its release would be lost.
  document.addEventListener("pointerdown", function () { pressed = true; });
  ["pointerup", "pointercancel"].forEach(function (e) {
    document.addEventListener(e, function () { setTimeout(function () { pressed = false; }, 0); });
  });

  // used reports whether somebody fills in the form.
  function used() {
    return form.contains(document.activeElement) || form.querySelector("details[open]");
  }

  function trouble(what) {
    failed = true;
    put(notice, what);
    document.body.classList.add("stale");
    show("trying again", "bad");
  }

  function update(text) {
    var page = new DOMParser().parseFromString(text, "text/html");
    var fresh = page.getElementById("live"), news = page.getElementById("notice"), kind = document.body.dataset.page;
    var error = page.body.dataset.page === "error", other = page.body.dataset.page !== kind;
    if (other && fresh && kind === "error") {
      location.reload(); // the worker has the page by now
      return;
    }
    if (!fresh || other) {
      trouble(news ? news.childNodes : [document.createTextNode("The worker answers with another page.")]);
      return;
    }
    if (failed || error) {
      put(notice, news.childNodes);
      failed = false;
    }
    document.body.classList.remove("stale");
    if (!pressed && !selecting()) replace(page);
    if (error) show("trying again", "bad"); // Redis is still away
    else show("live", "good");
  }

  function lost() {
    var text = document.createElement("div");
    text.className = "notice bad";
    text.textContent = "The worker does not answer. This page tries again every two seconds.";
    trouble([text]);
  }

  // watch asks for the page now, and then again and again while it is visible.
  function watch() {
    clearTimeout(timer);
    var mine = asked = {}; // an answer to an earlier question, such as one with another filter, counts no more
    if (document.visibilityState !== "visible") return; // visibilitychange calls watch again
    function then(after, show) {
      return function (text) {
        if (mine !== asked) return;
        timer = setTimeout(watch, after);
        show(text);
      };
    }
    fetch(address(), { signal: AbortSignal.timeout(patience) }).then(function (r) { return r.text(); }).then(then(every, update), then(2 * every, lost));
  }

  document.addEventListener("visibilitychange", watch);

  // The filter works while a person types. The address then names the filter, and can be shared.
  function filter() {
    var v = new URLSearchParams();
    if (search.value.trim()) v.set("q", search.value.trim());
    if (order && order.selectedIndex > 0) v.set("sort", order.value);
    var text = v.toString();
    history.replaceState(null, "", location.pathname + (text ? "?" + text : ""));
    watch();
  }
  if (search) {
    search.addEventListener("input", function () { clearTimeout(typing); typing = setTimeout(filter, 200); });
    search.form.addEventListener("submit", function (e) { e.preventDefault(); filter(); });
    order.addEventListener("change", filter);
    search.form.classList.add("scripted");
  }

  function move(by) {
    var rows = Array.from(document.querySelectorAll("[data-row]"));
    if (!rows.length) return;
    var at = rows.indexOf(document.activeElement);
    var next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
    rows[next].focus();
    rows[next].scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    var inField = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    var key = e.key;
    if (inField) {
      if (key === "Escape") e.target.blur();
      else if (e.target === search && key === "ArrowDown") move(1);
      else return;
    } else if (key === "/" && search) { search.focus(); search.select(); }
    else if (key === "j" || key === "ArrowDown") move(1);
    else if (key === "k" || key === "ArrowUp") move(-1);
    else if (key === "?") help.showModal();
    else if (key === "Escape") {
      var up = document.querySelector("[data-up]");
      if (up) up.click();
      else if (document.activeElement) document.activeElement.blur();
    } else return;
    e.preventDefault();
  });

  keys.hidden = false;
  keys.addEventListener("click", function () { help.showModal(); });
  watch();
})();

// Adds links to the Locks pages to asynq's dashboard: one to its navigation, and one to the page of
// a task. React draws that dashboard, so this looks again after each change. If the dashboard
// changes its elements, the links are missing, and nothing else happens.
(function () {
  "use strict";

  var icon = "M18 8h-1V6A5 5 0 0 0 7 6v2H6a2 2 0 0 0-2 2v10a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2V10a2 2 0 0 0-2-2zM9 6a3 3 0 0 1 6 0v2H9V6zm3 11a2 2 0 1 1 0-4 2 2 0 0 1 0 4z";

  // addToNavigation copies an entry, so that the new one looks like the others. The entry of the page
  // that is shown looks different.
  function addToNavigation() {
    var last = document.querySelector('a[href="/dashboard/redis"]');
    var list = last && last.closest("li") && last.closest("li").parentElement;
    if (!list) return;
    var other = Array.from(list.querySelectorAll('a[href^="/dashboard/"]')).find(function (a) { return a.getAttribute("href") !== location.pathname; });
    var mine = document.getElementById("siding-locks"), entry = other && other.closest("li");
    if (!entry || mine && mine.sidingLook === entry.innerHTML) return; // it looks like that already
    if (mine) mine.remove();
    mine = entry.cloneNode(true);
    mine.id = "siding-locks";
    mine.sidingLook = entry.innerHTML;
    mine.querySelectorAll("[title]").forEach(function (e) { e.title = "Locks"; });
    mine.querySelector("a").href = "/locks";
    var path = mine.querySelector("svg path"), text = mine.querySelector("span");
    if (path) path.setAttribute("d", icon);
    if (text) text.textContent = "Locks";
    last.closest("li").after(mine);
  }

  // inQuery escapes what stands for itself in a path, and for something else in a query.
  function inQuery(part) { return part.replace(/[+&;]/g, encodeURIComponent); }

  // addToTask links the page of a task to what the Locks pages know about the task.
  function addToTask() {
    var match = /^\/dashboard\/queues\/([^/]+)\/tasks\/([^/]+)\/?$/.exec(location.pathname);
    var mine = document.getElementById("siding-task");
    var title = Array.from(document.querySelectorAll("main h6")).find(function (e) { return e.textContent === "Task Info"; });
    if (!match || !title) return;
    if (!mine) {
      mine = document.createElement("a");
      mine.id = "siding-task";
      mine.textContent = "Its resource and lock, and why it waits";
      mine.style.color = "#4379ff";
      title.after(mine);
    }
    var url = "/locks/task?queue=" + inQuery(match[1]) + "&id=" + inQuery(match[2]);
    if (mine.getAttribute("href") !== url) mine.href = url;
  }

  var planned = 0;
  function update() {
    planned = 0;
    addToNavigation();
    addToTask();
  }
  function plan() { if (!planned) planned = setTimeout(update, 50); }
  new MutationObserver(plan).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  plan();
})();

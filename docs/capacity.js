// The calculator of docs/capacity.md.

// The arithmetic of `plan` on this page, in the same words; times in seconds.
function capacityPlan(rate, a, b, maxRecords, maxWait, partitions, busy, outage) {
  const share = (processes) => Math.ceil(partitions / processes) / partitions;
  const each = maxRecords / (a + b * maxRecords);
  let processes = 1;
  while (processes <= partitions && rate * share(processes) > busy * each) processes += 1;
  if (processes > partitions) return {processes: null, each, needed: Math.ceil(rate / (busy * each))};
  const own = rate * share(processes);
  const batch = Math.min(maxRecords, Math.max(1, own * maxWait, a ? own * a / (1 - own * b) : 0));
  const group = each / share(processes);
  return {
    processes, each, batch,
    load: own * (a / batch + b),
    latency: maxWait + 2 * (a + b * batch),
    without_one: processes > 1 ? rate * share(processes - 1) / each : Infinity,
    catch_up: group > rate ? outage * rate / (group - rate) : Infinity,
  };
}
(function () {
  const form = document.getElementById("capacity");
  if (!form) return;
  const shown = (value, digits) => Number.isFinite(value) ? value.toLocaleString("en", {maximumFractionDigits: digits}) : "–";
  function compute() {
    const given = (name) => Number(form.elements[name].value);
    const valid = form.checkValidity();
    const plan = valid ? capacityPlan(given("rate"), given("a") / 1e3, given("b") / 1e3, given("max_records"),
      given("max_wait") / 1e3, given("partitions"), given("busy") / 100, given("outage") * 60) : {};
    const show = (name, text) => { form.elements[name].value = text; };
    show("processes", !valid ? "a number is missing or out of its range"
      : plan.processes === null ? "more partitions are needed: " + shown(plan.needed, 0) + " at least" : shown(plan.processes, 0));
    show("each", shown(plan.each, 0));
    show("batch", shown(plan.batch, 0));
    show("load", shown(plan.load * 100, 0));
    show("latency", shown(plan.latency * 1e3, 1));
    show("without_one", shown(plan.without_one * 100, 0));
    show("catch_up", shown(plan.catch_up / 60, 1));
  }
  form.addEventListener("input", compute);
  form.addEventListener("submit", (event) => event.preventDefault());
  compute();
})();

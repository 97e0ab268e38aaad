// Returns how many jobs are still to be done, from the numbers of jobs by state.
export function unfinished(counts) {
  const over = ["completed", "failed"];
  return Object.entries(counts).reduce((sum, [state, n]) => (over.includes(state) ? sum : sum + n), 0);
}

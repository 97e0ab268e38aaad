// GroupMQ: one group per key. No lock, as a group has one active job at a time.
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";

export function openGroupMQ({ connection, jobs, workers }) {
  const redis = new Redis(connection);
  redis.on("error", () => {}); // while Redis is down, or when it ends with the run
  const queue = new Queue({ redis, namespace: "work", ...jobs });

  function worker(handle) {
    const worker = new Worker({ queue, handler: (job) => handle(job.data.id, job.attempts), ...workers });
    worker.on("error", () => {});
    return {
      start: async () => {
        worker.run().catch(() => {});
      },
      stop: () => worker.close(),
    };
  }

  return {
    worker,
    enqueue: (tasks) => Promise.all(tasks.map(({ id, key }) => queue.add({ groupId: key, data: { id } }))),
    left: async () => unfinished(await queue.getJobCounts()),
  };
}

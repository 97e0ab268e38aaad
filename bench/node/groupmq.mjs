// GroupMQ: one group per key. No lock, as a group has one active job at a time.
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";

export async function openGroupMQ({ host, port, workers }, recorder) {
  const redis = new Redis({ host, port, maxRetriesPerRequest: null });
  const queue = new Queue({ redis, namespace: "work", jobTimeoutMs: 30_000 });
  const worker = new Worker({ queue, concurrency: workers, handler: (job) => recorder.handle(job.data.id) });
  worker.on("error", () => {}); // connections that end with the run

  return {
    enqueue: (tasks) => Promise.all(tasks.map(({ id, key }) => queue.add({ groupId: key, data: { id } }))),
    start: async () => {
      worker.run().catch(() => {});
    },
    stop: () => worker.close(),
    left: async () => unfinished(await queue.getJobCounts()),
  };
}

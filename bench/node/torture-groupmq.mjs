// GroupMQ for cmd/torture: one group per key, and no lock.
import { Queue, Worker } from "groupmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";

export function openGroupMQ({ connection, slots, ttl }) {
  const redis = new Redis(connection);
  redis.on("error", () => {}); // while Redis is down
  const queue = new Queue({ redis, namespace: "work", jobTimeoutMs: ttl, maxAttempts: 25 });

  async function work(handle) {
    const worker = new Worker({
      queue,
      concurrency: slots,
      handler: (job) => handle(job.data.id, job.attempts),
      cleanupIntervalMs: ttl,
      stalledInterval: ttl,
      maxStalledCount: 25, // by default the first crash fails the job
    });
    worker.on("error", () => {});
    worker.run().catch(() => {});
    return () => worker.close();
  }

  return {
    enqueue: (id, key) => queue.add({ groupId: key, data: { id } }),
    work,
    left: async () => unfinished(await queue.getJobCounts()),
  };
}

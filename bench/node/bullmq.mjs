// BullMQ with a lock per key: a job whose key is taken goes to the delayed set.
import { randomUUID } from "node:crypto";
import { DelayedError, Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { unfinished } from "./counts.mjs";

const ttl = 30_000; // ms
const delay = 10; // ms

export const release = `
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0`;

export async function openBullMQ({ host, port, workers }, recorder) {
  const connection = { host, port, maxRetriesPerRequest: null };
  const queue = new Queue("work", { connection, defaultJobOptions: { attempts: 1, removeOnComplete: true } });
  const locks = new Redis(connection);
  locks.defineCommand("releaseLock", { numberOfKeys: 1, lua: release });

  const process = async (job, token) => {
    const { id, key } = job.data;
    const holder = randomUUID();
    if ((await locks.set(`lock:${key}`, holder, "PX", ttl, "NX")) !== "OK") {
      await job.moveToDelayed(Date.now() + delay, token);
      throw new DelayedError();
    }
    try {
      await recorder.handle(id);
    } finally {
      await locks.releaseLock(`lock:${key}`, holder);
    }
  };
  const worker = new Worker("work", process, {
    connection,
    concurrency: workers,
    autorun: false,
  });
  worker.on("error", () => {}); // connections that end with the run
  await queue.waitUntilReady();

  return {
    enqueue: (tasks) => queue.addBulk(tasks.map(({ id, key }) => ({ name: "work", data: { id, key } }))),
    start: async () => {
      await worker.waitUntilReady();
      worker.run().catch(() => {});
    },
    stop: () => worker.close(),
    left: async () => unfinished(await queue.getJobCounts()),
  };
}

// A plain worker in node-redis: reads, works, acknowledges, and finishes what it held when it ended.
// What it must and should do is in docs/reference/protocol.md. handle stands for your work.
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@redis/client";

const { PELOPS_STREAM: stream, PELOPS_GROUP: group, PELOPS_CONSUMER: consumer } = process.env;
const server = createClient({
  RESP: 2,
  url: process.env.PELOPS_REDIS_URL,
  username: process.env.PELOPS_REDIS_USERNAME,
  password: process.env.PELOPS_REDIS_PASSWORD,
  socket: { socketTimeout: 10_000 },
});
let ending = false;

async function handle(id, fields) {
  const ms = Number(fields.get("work_ms") ?? 0);
  if (Number.isNaN(ms)) throw new Error(`no time: ${fields.get("work_ms")}`);
  await sleep(ms);
  console.log("done", id);
}

// Not by xReadGroup, which throws at an entry whose body is gone.
async function read(position) {
  const limits = ["COUNT", "100", "BLOCK", "2000", "STREAMS", stream, position];
  const answer = await server.sendCommand(["XREADGROUP", "GROUP", group, consumer, ...limits]);
  return (answer ?? []).flatMap(([, entries]) => entries);
}

const pairs = (flat) => new Map(flat.flatMap((name, i) => (i % 2 ? [] : [[name, flat[i + 1]]])));

// Read once and work what came; where to read next: the own history first, then new ones.
async function work(position) {
  const entries = await read(position);
  for (const [id, body] of entries) {
    try {
      if (body) await handle(id, pairs(body)); // else its body is gone
    } catch (error) {
      console.error("failed", id, error.message); // it stays pending, and is tried again after the idle limit
      continue;
    }
    await server.xAck(stream, group, id);
    if (ending) break;
  }
  return position === ">" || entries.length === 0 ? ">" : entries.at(-1)[0];
}

process.once("SIGTERM", () => (ending = true));
server.on("error", (error) => console.error("waiting:", error.message));
await server.connect();
for (let position = "0"; !ending; ) {
  try {
    position = await work(position);
  } catch (error) {
    console.error("waiting:", error.message);
    await sleep(1000);
    position = "0";
  }
}
server.destroy();

/**
 * Fetches the messages of a queue, says what it got, and acknowledges each.
 *
 *     node worker.js greetings
 *     node worker.js greetings --count 10      # end after ten messages
 *     node worker.js greetings --idle 3        # end when nothing has come for three seconds
 *     node worker.js greetings --no-ack        # acknowledge nothing: everything comes back after its timeout
 *
 * SIGTERM and Ctrl-C end it after the message that it is at. It may be started before the queue exists.
 */

import { parseArgs } from "node:util";

import { DEFAULT_URL, connect } from "./etzel.js";

const OPTIONS = {
  url: { type: "string", default: process.env.ETZEL_URL ?? DEFAULT_URL },
  count: { type: "string", default: "Infinity" },
  idle: { type: "string", default: "Infinity" },
  "no-ack": { type: "boolean", default: false },
};

function readArguments() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: OPTIONS });
  const [queue] = positionals;
  const [countMax, idleSeconds] = [Number(values.count), Number(values.idle)];
  if (positionals.length !== 1 || !(countMax >= 1) || !(idleSeconds > 0)) {
    throw new TypeError("a queue is needed, and a count and seconds are above 0");
  }
  return { queue, countMax, idleSeconds, url: values.url, acknowledges: !values["no-ack"] };
}

let options;
try {
  options = readArguments();
} catch (error) {
  console.error(`worker: ${error.message}`);
  console.error("usage: node worker.js QUEUE [--count N] [--idle SECONDS] [--no-ack] [--url URL]");
  process.exit(2);
}
const { queue, countMax, idleSeconds } = options;

const stop = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) {
  process.once(name, () => stop.abort());
}
let idleTimer;

function resetIdleTimer() {
  clearTimeout(idleTimer);
  if (idleSeconds !== Infinity) {
    idleTimer = setTimeout(() => stop.abort(), idleSeconds * 1000);
  }
}

function figures(frames) {
  return Object.entries(frames).map(([command, times]) => `${command} ${times}`).join(", ");
}

try {
  const client = await connect(options.url);
  let got = 0;
  const onSleep = () => console.log(`nothing in ${queue}: asleep until there is`);
  resetIdleTimer();
  for await (const message of client.messages(queue, { signal: stop.signal, onSleep })) {
    const again = message.errorCount > 0 ? `, delivered ${message.errorCount} times before` : "";
    if (options.acknowledges) {
      await message.acknowledge();
      console.log(`done ${JSON.stringify(message.text)} (${message.uid}${again})`);
    } else {
      console.log(`got ${JSON.stringify(message.text)} (${message.uid}${again}), not acknowledged`);
    }
    got += 1;
    resetIdleTimer();
    if (got >= countMax) {
      break;
    }
  }
  clearTimeout(idleTimer);
  await client.close();
  console.log(`${got} messages; sent: ${figures(client.sent)}; received: ${figures(client.received)}`);
} catch (error) {
  console.error(`worker: ${error.message}`);
  process.exit(1);
}

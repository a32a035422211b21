/**
 * Publishes messages to a queue: `hello 1`, `hello 2` and so on.
 *
 *     node publisher.js greetings                                # one
 *     node publisher.js greetings 10 --delay 2                   # ten, which can be fetched in two seconds
 *     node publisher.js greetings 10 --priority=-20 --text now   # `now 1` to `now 10`, before what waits with 0
 *     node publisher.js greetings --burst 1000000                # all at once, reading no answer before the last is sent
 */

import { parseArgs } from "node:util";

import { DEFAULT_URL, connect } from "./etzel.js";

const WINDOW = 100; // requests that wait for their answer at a time

const OPTIONS = {
  url: { type: "string", default: process.env.ETZEL_URL ?? DEFAULT_URL },
  text: { type: "string", default: "hello" },
  delay: { type: "string", default: "0" },
  expires: { type: "string", default: "0" },
  timeout: { type: "string" },
  priority: { type: "string" },
  burst: { type: "string" },
};

function readArguments() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: OPTIONS });
  const [queue, countText = values.burst ?? "1"] = positionals;
  const count = Number(countText);
  if (positionals.length < 1 || positionals.length > 2 || !Number.isInteger(count) || count < 1) {
    throw new TypeError("a queue is needed, and a count is a whole number above 0");
  }
  const { delay, expires, timeout, priority } = values;
  const settings = { delay: number(delay), expires: number(expires), timeout: number(timeout), priority: number(priority) };
  // A window as large as the whole: nothing is waited for, so no answer is read before the last message is sent.
  const window = values.burst === undefined ? WINDOW : count;
  return { queue, count, window, settings, text: values.text, url: values.url };
}

/** What is no number goes out as it was typed: the server says what is wrong with it. */
function number(text) {
  return text === undefined || Number.isNaN(Number(text)) ? text : Number(text);
}

let options;
try {
  options = readArguments();
} catch (error) {
  console.error(`publisher: ${error.message}`);
  console.error(
    "usage: node publisher.js QUEUE [COUNT | --burst COUNT] [--text TEXT] [--delay SECONDS] [--expires SECONDS]\n" +
      "                         [--timeout SECONDS] [--priority=NUMBER] [--url URL]",
  );
  process.exit(2);
}
const { queue, count, window, settings, text } = options;

try {
  const client = await connect(options.url);
  const began = performance.now();
  for (let first = 1; first <= count; first += window) {
    const size = Math.min(window, count - first + 1);
    const texts = Array.from({ length: size }, (_, n) => `${text} ${first + n}`);
    await client.publishAll(queue, texts, settings);
  }
  const seconds = (performance.now() - began) / 1000;
  await client.close();
  const rate = Math.round(count / seconds);
  console.log(`published ${count} to ${queue} in ${seconds.toFixed(1)} s (${rate} a second): ok ${client.received.ok}`);
} catch (error) {
  console.error(`publisher: ${error.message}`);
  process.exit(1);
}

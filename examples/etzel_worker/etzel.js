/**
 * A client of the Etzel protocol: JSON in the text frames of one WebSocket.
 *
 *     const client = await connect("ws://127.0.0.1:8080/connect");
 *     await client.publish("greetings", "hello", { delay: 2 });
 *     for await (const message of client.messages("greetings")) {
 *       console.log(message.text);
 *       await message.acknowledge();
 *     }
 *
 * Every request has exactly one reply, and replies come in the order of the requests: so a list of those that wait for
 * one is all the bookkeeping there is. Only `awk`, which says that a queue has a message, comes unasked.
 */

import WebSocket from "ws";

export const DEFAULT_URL = "ws://127.0.0.1:8080/connect";

/** The server refused a request; `code` is its reason, BAD_DELAY for instance. */
export class Refused extends Error {
  constructor(code) {
    super(`the server refused: ${code}`);
    this.name = "Refused";
    this.code = code;
  }
}

/** The connection has ended; what was not answered may or may not have been done. */
export class Disconnected extends Error {
  constructor(reason) {
    super(`the connection has ended: ${reason}`);
    this.name = "Disconnected";
  }
}

/** A message that was fetched: it comes back after its timeout unless it is acknowledged. */
export class Message {
  #client;
  #payload;

  constructor(client, reply) {
    this.#client = client;
    this.#payload = reply;
    this.queue = reply.qname;
    this.uid = reply.uid;
    /** How often it was delivered before. */
    this.errorCount = reply.error_count ?? 0;
  }

  /** What was published, as text. */
  get text() {
    return this.#payload.encoding === "base64" ? this.bytes.toString("utf8") : this.#payload.msg;
  }

  /** What was published, as bytes: not everything is text. */
  get bytes() {
    return Buffer.from(this.#payload.msg, this.#payload.encoding === "base64" ? "base64" : "utf8");
  }

  /** The work is done: the message ends. */
  async acknowledge() {
    await this.#client.request({ cmd: "ACK", qname: this.queue, uid: this.uid });
  }
}

/** Opens a connection; the promise is rejected if there is none to be had. */
export function connect(url = DEFAULT_URL) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    socket.once("error", reject);
    socket.once("open", () => {
      socket.off("error", reject);
      resolve(new Client(socket));
    });
  });
}

/** One connection. Made by `connect`. */
class Client {
  #socket;
  #unanswered = [];
  #oldest = 0;
  #awake = new Set();
  #sleepers = new Map();
  #ended = null;

  constructor(socket) {
    this.#socket = socket;
    /** How many frames of each command went out and came in. */
    this.sent = {};
    this.received = {};
    socket.on("message", (frame) => this.#receive(JSON.parse(frame.toString("utf8"))));
    socket.on("error", (error) => this.#end(new Disconnected(error.message)));
    socket.on("close", (code) => this.#end(new Disconnected(`closed with code ${code}`)));
  }

  /**
   * Puts a text into a queue, which is made if it is missing. The message is stored when the promise is kept.
   *
   * Seconds, fractions allowed: `delay` before it can be fetched, `expires` after which it is dropped (0: never),
   * `timeout` after which it comes back if it was fetched and not acknowledged. The smallest `priority` goes first.
   */
  publish(qname, text, settings) {
    return this.publishAll(qname, [text], settings);
  }

  /** Publishes texts all at once: no answer is read before the last of them is on its way. */
  publishAll(qname, texts, { delay = 0, expires = 0, timeout, priority } = {}) {
    return new Promise((resolve, reject) => {
      let missing = texts.length;
      const waiter = {
        reject,
        resolve: (reply) => {
          missing -= 1;
          if (reply.cmd === "nok") {
            reject(new Refused(reply.err));
          } else if (missing === 0) {
            resolve();
          }
        },
      };
      for (const text of texts) {
        this.#send({ cmd: "PUB", qname, msg: String(text), delay, expires, timeout, priority }, waiter);
      }
    });
  }

  /**
   * The messages of a queue, one after the other, for as long as somebody asks for the next.
   *
   * Fetch; if there was nothing, sleep; fetch again when woken. `onSleep` is called when there is nothing to do. An
   * aborted `signal` ends it: not in the middle of a fetch, since what that brings would be out of reach until its
   * timeout.
   */
  async *messages(qname, { signal, onSleep = () => {} } = {}) {
    await this.request({ cmd: "SUB", qname });
    while (!signal?.aborted) {
      this.#awake.delete(qname);
      const reply = await this.#exchange({ cmd: "FET", qname });
      if (reply.cmd === "msg") {
        yield new Message(this, reply);
        continue;
      }
      if (reply.cmd === "nomsg") {
        await this.request({ cmd: "ISLP", qname });
      } else if (reply.err !== "Q_NOT_FOUND") {
        throw new Refused(reply.err);
      }
      // A queue that does not exist yet needs no ISLP: its subscribers are woken when it gets its first message.
      onSleep();
      await this.#woken(qname, signal);
    }
  }

  /** Sends a request and waits for its reply; throws Refused if that is `nok`. */
  async request(fields) {
    const reply = await this.#exchange(fields);
    if (reply.cmd === "nok") {
      throw new Refused(reply.err);
    }
    return reply;
  }

  /** Ends the connection in good order. */
  close() {
    return new Promise((resolve) => {
      this.#socket.once("close", resolve);
      this.#socket.close(1000);
      if (this.#socket.readyState === WebSocket.CLOSED) {
        resolve();
      }
    });
  }

  #exchange(fields) {
    return new Promise((resolve, reject) => this.#send(fields, { resolve, reject }));
  }

  #send(fields, waiter) {
    if (this.#ended !== null) {
      waiter.reject(this.#ended);
      return;
    }
    this.#unanswered.push(waiter);
    count(this.sent, fields.cmd);
    this.#socket.send(JSON.stringify(fields));
  }

  #receive(reply) {
    count(this.received, reply.cmd);
    if (reply.cmd === "awk") {
      this.#awake.add(reply.qname);
      this.#sleepers.get(reply.qname)?.resolve();
      return;
    }
    // Taking from the front of a long array is slow, so the front moves on, and is cut off now and then.
    this.#unanswered[this.#oldest].resolve(reply);
    this.#unanswered[this.#oldest] = undefined;
    this.#oldest += 1;
    if (this.#oldest === this.#unanswered.length || this.#oldest === 10_000) {
      this.#unanswered.splice(0, this.#oldest);
      this.#oldest = 0;
    }
  }

  /** Waits for awk; it may have come already, together with the reply to ISLP. */
  async #woken(qname, signal) {
    if (this.#awake.has(qname) || signal?.aborted) {
      return;
    }
    let stop;
    try {
      await new Promise((resolve, reject) => {
        if (this.#ended !== null) {
          reject(this.#ended);
          return;
        }
        this.#sleepers.set(qname, { resolve, reject });
        stop = resolve;
        signal?.addEventListener("abort", stop);
      });
    } finally {
      signal?.removeEventListener("abort", stop);
      this.#sleepers.delete(qname);
    }
  }

  #end(error) {
    if (this.#ended !== null) {
      return;
    }
    this.#ended = error;
    for (const { reject } of [...this.#unanswered.slice(this.#oldest), ...this.#sleepers.values()]) {
      reject(error);
    }
  }
}

function count(figures, name) {
  figures[name] = (figures[name] ?? 0) + 1;
}

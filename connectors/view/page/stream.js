// The one streamed response that brings all cameras: a browser opens only six connections to a server.

const token = new URLSearchParams(location.hash.slice(1)).get("token");
const headers = token ? { Authorization: `Bearer ${token}` } : {};

// A picture or a file of this service; the answer has to be looked at.
export function fetched(path) {
  return fetch(path, { headers, cache: "no-store" });
}

// The address of a file for what cannot send headers, such as a video.
export function addressOf(path) {
  return token ? `${path}?token=${encodeURIComponent(token)}` : path;
}

export class Stream {
  #asked = "";
  #stop = null;

  // `take(facts, jpeg)` gets each piece, `say(state, text)` how the connection is, `query()` what is wanted.
  constructor(take, say, query) {
    this.take = take;
    this.say = say;
    this.query = query;
  }

  // Ask anew if something else is wanted by now.
  wanted() {
    if (this.#stop && this.#key() !== this.#asked) this.#stop.abort();
  }

  #key() {
    const query = new URLSearchParams(this.query());
    query.delete("after");
    return query.toString();
  }

  async run() {
    for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
      this.#stop = new AbortController();
      this.#asked = this.#key();
      try {
        const query = new URLSearchParams(this.query());
        const response = await fetch(`stream?${query}`, { headers, cache: "no-store", signal: this.#stop.signal });
        if (response.status === 401) {
          this.say("away", "a token is needed: open this page with #token=TOKEN behind its address");
          return;
        }
        if (!response.ok) throw new Error(`the server answers ${response.status}`);
        this.say("live");
        wait = 500;
        await this.#read(response.body);
        this.say("away", "the service has ended; trying again");
      } catch (error) {
        if (this.#stop.signal.aborted) { wait = 250; continue; }
        this.say("away", "the service is away; trying again");
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  // Each piece is a JSON object and a JPEG file, each with its length before it.
  async #read(body) {
    const reader = body.getReader();
    let held = new Uint8Array(0);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const joined = new Uint8Array(held.length + value.length);
      joined.set(held);
      joined.set(value, held.length);
      held = joined;
      for (;;) {
        if (held.length < 8) break;
        const view = new DataView(held.buffer, held.byteOffset, held.byteLength);
        const first = view.getUint32(0);
        if (held.length < 8 + first) break;
        const second = view.getUint32(4 + first);
        if (held.length < 8 + first + second) break;
        const facts = JSON.parse(new TextDecoder().decode(held.subarray(4, 4 + first)));
        this.take(facts, held.slice(8 + first, 8 + first + second));
        held = held.slice(8 + first + second);
      }
    }
  }
}

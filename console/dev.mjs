// Serves the console from its sources, and the API of a running Forebay behind it:
//   FOREBAY_ADMIN_ENDPOINT=http://127.0.0.1:9701 npm run dev
// Each request for a file builds anew, which takes a few hundredths of a second.
import http from "node:http";
import { bundle } from "./build.mjs";

const endpoint = new URL(process.env.FOREBAY_ADMIN_ENDPOINT ?? "http://127.0.0.1:9701");
const port = Number(process.env.PORT ?? 9702);
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css", svg: "image/svg+xml" };
// As the server sends it, so that what it forbids is seen here.
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'";

async function page(name, response) {
  const bytes = (await bundle()).get(name || "index.html");
  const type = TYPES[(name || "index.html").split(".").at(-1)];
  response.writeHead(bytes ? 200 : 404, { "Content-Type": type ?? "text/plain", "Content-Security-Policy": POLICY });
  response.end(bytes ?? "There is no such file.");
}

function forward(request, response) {
  const { origin: _, ...headers } = request.headers;
  const options = { method: request.method, headers: { ...headers, host: endpoint.host } };
  const behind = http.request(new URL(request.url, endpoint), options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  behind.on("error", () => response.destroy());
  request.pipe(behind);
}

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  if (pathname.startsWith("/api/")) return forward(request, response);
  if (!pathname.startsWith("/console/")) return response.writeHead(303, { Location: "/console/" }).end();
  page(pathname.slice("/console/".length), response).catch((error) => {
    console.error(error.message);
    response.writeHead(500).end();
  });
});
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/console/ in front of ${endpoint.origin}`));

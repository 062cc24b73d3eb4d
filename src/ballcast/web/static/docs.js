// The API page, built from /openapi.json: each request, its parameters and its responses.

import { h } from "./dom.js";
import "./theme.js";

const { info, paths, components } = await (await fetch("/openapi.json")).json();

const kind = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.enum) return schema.enum.join(" | ");
  return schema.const ?? schema.type ?? "";
};

const body = (content) =>
  Object.entries(content ?? {}).map(([type, { schema }]) => (type === "application/json" && schema ? kind(schema) : type));

function operation(path, method, { summary, description, parameters, requestBody, responses }) {
  const takes = [
    ...(parameters ?? []).map((p) => `${p.name} (${p.in}${p.required ? "" : ", optional"}): ${kind(p.schema)}`),
    ...body(requestBody?.content).map((text) => `body: ${text}`),
  ];
  const gives = Object.entries(responses).map(([status, { content }]) =>
    [status, body(content).join(", ") || (status < "300" ? "" : "Error")].join(" ").trim(),
  );
  return h(
    "section",
    { class: "card" },
    h("h3", {}, h("code", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, path)),
    h("p", {}, description ?? summary),
    takes.length ? h("p", {}, h("span", { class: "quiet" }, "Takes "), takes.join("; ")) : null,
    h("p", {}, h("span", { class: "quiet" }, "Gives "), gives.join("; ")),
  );
}

function record(name, { description, properties }) {
  const fields = Object.entries(properties ?? {}).map(([field, schema]) =>
    h("tr", {}, h("td", {}, h("code", {}, field)), h("td", {}, kind(schema)), h("td", {}, schema.description ?? "")),
  );
  const rows = h("div", { class: "wide" }, h("table", {}, h("tbody", {}, fields)));
  return h("section", { class: "card" }, h("h3", {}, name), h("p", {}, description ?? ""), rows);
}

const ours = Object.entries(components?.schemas ?? {}).filter(([name]) => !name.includes("ValidationError"));
document.getElementById("docs").replaceChildren(
  h("h1", {}, `${info.title} ${info.version}`),
  ...info.description.split("\n\n").map((text) => h("p", {}, text)),
  h("h2", {}, "Requests"),
  ...Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => operation(path, method, about)),
  ),
  h("h2", {}, "Records"),
  ...ours.map(([name, schema]) => record(name, schema)),
);

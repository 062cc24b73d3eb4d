// The API page, built from /openapi.json: each request, its parameters and its responses.

import { h } from "./dom.js";
import { t } from "./text.js";
import "./theme.js";

document.title = t("docs.title");

const { info, paths, components } = await (await fetch("/openapi.json")).json();

const kind = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(t("docs.or"));
  if (schema.type === "array") return t("docs.list", { type: kind(schema.items) });
  if (schema.enum) return schema.enum.join(" | ");
  return schema.const ?? schema.type ?? "";
};

const body = (content) =>
  Object.entries(content ?? {}).map(([type, { schema }]) => (type === "application/json" && schema ? kind(schema) : type));

function operation(path, method, { summary, description, parameters, requestBody, responses }) {
  const takes = [
    ...(parameters ?? []).map((p) => t(p.required ? "docs.parameter" : "docs.optional", { name: p.name, where: p.in, type: kind(p.schema) })),
    ...body(requestBody?.content).map((text) => t("docs.body", { type: text })),
  ];
  const gives = Object.entries(responses).map(([status, { content }]) =>
    [status, body(content).join(", ") || (status < "300" ? "" : "Error")].join(" ").trim(),
  );
  return h(
    "section",
    { class: "card" },
    h("h3", {}, h("code", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, path)),
    h("p", {}, description ?? summary),
    takes.length ? h("p", {}, h("span", { class: "quiet" }, `${t("docs.takes")} `), takes.join("; ")) : null,
    h("p", {}, h("span", { class: "quiet" }, `${t("docs.gives")} `), gives.join("; ")),
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
  h("h2", {}, t("docs.requests")),
  ...Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => operation(path, method, about)),
  ),
  h("h2", {}, t("docs.records")),
  ...ours.map(([name, schema]) => record(name, schema)),
);

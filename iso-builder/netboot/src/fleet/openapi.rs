//! The OpenAPI document of the API: schemas from the types that are sent, paths from this file. It is also
//! `docs/reference/fleet-api.openapi.json`; the tests of [`super::routes`] compare real answers with it.

use base::encode::json_text;
use model::config::Role;
use model::fleet::{CONTENT_TYPE, CreatorStatus, ReportLine};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::answers::{ActionAnswer, ErrorAnswer, OutcomeAnswer, PlanAnswer};
use super::audit::AuditDocument;
use super::document::FleetDocument;
use super::stage::{MachineStage, StageGroup};
use super::view::VERSION;
use crate::machines::machine::OperatorAction;

/// The document; it needs no token.
pub const PATH: &str = "/v1/openapi.json";

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const FORM: &str = "application/x-www-form-urlencoded";
/// The prefix of a schema's place.
const SCHEMAS: &str = "#/components/schemas/";

/// The document as it is served, indented.
#[must_use]
pub fn text() -> String {
    json_text(&document()) + "\n"
}

/// OpenAPI 3.1.0 (<https://spec.openapis.org/oas/v3.1.0>), whose schemas are those of JSON Schema 2020-12.
#[must_use]
pub fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = SCHEMAS.trim_start_matches('#').into();
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let paths = json!({
        "/v1/fleet": { "get": list(&mut schemas) },
        "/v1/fleet/audit": { "get": audit(&mut schemas) },
        "/v1/openapi.json": { "get": open(operation(
            "openapi",
            "This document",
            vec![],
            &[("200", "The document", Some((JSON, json!({ "type": "object" }))))],
        )) },
        "/v1/report/{token}": { "post": report(&mut schemas) },
        "/fleet/machines/{id}/{action}": { "post": act(&mut schemas) },
        "/fleet/machines/{id}/log": { "get": operation(
            "machineLog",
            "The log of a machine's latest run",
            vec![path_parameter("id", "The id of a machine", json!({ "type": "string" }))],
            &[
                ("200", "The log", Some((TEXT, json!({ "type": "string" })))),
                refused(&mut schemas, "401", "No valid token"),
                ("404", "There is no log of this machine", None),
            ],
        ) },
        "/fleet/conflicts/{id}/dismiss": { "post": dismiss(&mut schemas) },
        "/fleet/actions": { "post": plan(&mut schemas) },
        "/fleet/actions/confirm": { "post": confirm(&mut schemas) },
        "/livez": { "get": open(operation(
            "live",
            "Whether the process answers",
            vec![],
            &[("200", "It does", Some((TEXT, json!({ "type": "string" }))))],
        )) },
        "/readyz": { "get": open(operation(
            "ready",
            "Whether the server can do its work",
            vec![query("exclude", "A check that is left out", many(json!({ "enum": ["state", "medium"] })))],
            &[
                ("200", "Every check is good", Some((TEXT, json!({ "type": "string" })))),
                ("400", "There is no such check", Some((TEXT, json!({ "type": "string" })))),
                ("503", "A line for each check says why", Some((TEXT, json!({ "type": "string" })))),
            ],
        )) },
        "/metrics": { "get": operation(
            "metrics",
            "Metrics for Prometheus",
            vec![],
            &[
                ("200", "The metrics", Some((TEXT, json!({ "type": "string" })))),
                ("401", "No valid token", Some((TEXT, json!({ "type": "string" })))),
            ],
        ) },
    });
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fleet API of iso-builder serve",
            "version": VERSION.to_string(),
            "description": "Requests to the fleet take a token of `iso-builder tokens new`. While the database of the fleet does \
                            not answer, every path that needs it answers 503 with Retry-After.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": Value::Object(schemas.take_definitions(true)),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    unlink(&mut document);
    document
}

/// Takes the links of rustdoc out of descriptions, which lead nowhere here.
fn unlink(value: &mut Value) {
    match value {
        Value::Object(keys) => {
            if let Some(Value::String(text)) = keys.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`");
            }
            keys.values_mut().for_each(unlink);
        }
        Value::Array(all) => all.iter_mut().for_each(unlink),
        _ => {}
    }
}

fn list(schemas: &mut SchemaGenerator) -> Value {
    let text = || json!({ "type": "string" });
    let parameters = vec![
        query(
            "stage",
            "Only machines in one of these stages",
            many(words(&MachineStage::ALL.map(MachineStage::name))),
        ),
        query(
            "group",
            "Only machines of one of these groups",
            many(words(&StageGroup::ALL.map(StageGroup::name))),
        ),
        query("role", "Only machines with one of these roles", many(words(&Role::ALL.map(Role::name)))),
        query("cluster", "Only machines of one of these clusters; `-` for none", many(text())),
        query("rack", "Only machines of one of these racks; `-` for none", many(text())),
        query("name", "Only machines with one of these names", many(text())),
        query("text", "Only machines of which a text has one of these parts", many(text())),
        query("since", "Only what has changed since this version of the list", text()),
        query(
            "limit",
            "The most machines, which are in the order of their ids then",
            json!({ "type": "integer", "minimum": 1, "maximum": 10_000 }),
        ),
        query("after", "The id of the last machine of the part before", text()),
        json!({ "name": "If-None-Match", "in": "header", "description": "The `ETag` of the list that the client has", "schema": text() }),
    ];
    let whole = schema::<FleetDocument<'_>>(schemas);
    let responses = [
        ("200", "The list, or what has changed in it", Some((JSON, whole))),
        ("304", "The list is the same but for times", None),
        refused(schemas, "400", "The query is not valid"),
        refused(schemas, "401", "No valid token"),
    ];
    operation("fleet", "The machines of the fleet", parameters, &responses)
}

fn audit(schemas: &mut SchemaGenerator) -> Value {
    let parameters = vec![
        query(
            "limit",
            "The length of a page",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        ),
        query("before", "Only entries with a lower number", json!({ "type": "integer", "minimum": 0 })),
        query("machine", "Only entries about the machine with this id", json!({ "type": "string" })),
    ];
    let page = schema::<AuditDocument>(schemas);
    let responses = [
        ("200", "A page of the audit log, the latest first", Some((JSON, page))),
        refused(schemas, "400", "The query is not valid"),
        refused(schemas, "401", "No valid token"),
    ];
    operation("audit", "Who has done what", parameters, &responses)
}

fn act(schemas: &mut SchemaGenerator) -> Value {
    let parameters = vec![
        path_parameter("id", "The id of a machine", json!({ "type": "string" })),
        path_parameter("action", "What to do", words(&OperatorAction::ALL.map(OperatorAction::name))),
        accepts_json(),
    ];
    let done = schema::<ActionAnswer>(schemas);
    let responses = [
        ("200", "It was done", Some((JSON, done))),
        refused(schemas, "401", "No valid token"),
        refused(schemas, "403", "The token may only read"),
        refused(schemas, "404", "There is no such machine"),
        refused(schemas, "409", "The state of the machine does not allow it"),
    ];
    operation("act", "Act on a machine", parameters, &responses)
}

fn dismiss(schemas: &mut SchemaGenerator) -> Value {
    let parameters =
        vec![path_parameter("id", "The id of a conflict", json!({ "type": "string" })), accepts_json()];
    let done = schema::<ActionAnswer>(schemas);
    let responses = [
        ("200", "It was removed", Some((JSON, done))),
        refused(schemas, "401", "No valid token"),
        refused(schemas, "403", "The token may only read"),
        refused(schemas, "404", "There is no such conflict"),
    ];
    operation("dismiss", "Remove a conflict", parameters, &responses)
}

fn plan(schemas: &mut SchemaGenerator) -> Value {
    let form = json!({
        "type": "object",
        "required": ["action"],
        "properties": {
            "action": words(&OperatorAction::ALL.map(OperatorAction::name)),
            "of": { "enum": ["chosen", "matching"], "default": "chosen" },
            "machine": { "description": "With `chosen`, the ids of machines", "type": "array", "items": { "type": "string" } },
            "query": { "description": "With `matching`, a query of /v1/fleet", "type": "string" },
        },
    });
    let plan = schema::<PlanAnswer>(schemas);
    let responses =
        [("200", "What it would do", Some((JSON, plan)))].into_iter().chain(bulk_refusals(schemas));
    let answer = operation(
        "plan",
        "What an action on several machines would do; nothing is done",
        vec![accepts_json()],
        &responses.collect::<Vec<_>>(),
    );
    with_body(answer, FORM, form)
}

fn confirm(schemas: &mut SchemaGenerator) -> Value {
    let form = json!({
        "type": "object",
        "required": ["action", "seen"],
        "properties": {
            "action": words(&OperatorAction::ALL.map(OperatorAction::name)),
            "seen": { "description": "That of the plan", "type": "string" },
            "count": { "description": "The number of machines, to redeploy several", "type": "integer" },
        },
    });
    let outcome = schema::<OutcomeAnswer>(schemas);
    let responses =
        [("200", "What came of it", Some((JSON, outcome)))].into_iter().chain(bulk_refusals(schemas));
    let answer = operation(
        "confirm",
        "Carry out a plan on the machines that are as they were seen",
        vec![accepts_json()],
        &responses.collect::<Vec<_>>(),
    );
    with_body(answer, FORM, form)
}

fn bulk_refusals(schemas: &mut SchemaGenerator) -> [OperationResponse; 3] {
    [
        refused(schemas, "400", "The form is not valid"),
        refused(schemas, "401", "No valid token"),
        refused(schemas, "403", "The token may only read"),
    ]
}

fn report(schemas: &mut SchemaGenerator) -> Value {
    let line = schema::<ReportLine>(schemas);
    let status = schema::<CreatorStatus>(schemas);
    let parameters =
        vec![path_parameter("token", "The token in the boot script", json!({ "type": "string" }))];
    let responses = [
        ("200", "The machine waits: how far the one is that creates its cluster", Some((JSON, status))),
        ("204", "The report was stored", None),
        ("400", "The report is not valid", Some((TEXT, json!({ "type": "string" })))),
        ("403", "The token is not valid any more: reports end", Some((TEXT, json!({ "type": "string" })))),
    ];
    let answer = operation(
        "report",
        "Report of a machine: lines of JSON, the first of them `hello`",
        parameters,
        &responses,
    );
    open(with_body(answer, CONTENT_TYPE, line))
}

/// The status, what it means, and the type of its content with the schema of it.
type OperationResponse = (&'static str, &'static str, Option<(&'static str, Value)>);

fn operation(id: &str, summary: &str, parameters: Vec<Value>, responses: &[OperationResponse]) -> Value {
    let mut all = Map::new();
    for (status, description, content) in responses {
        let content = content.as_ref().map(|(kind, schema)| json!({ *kind: { "schema": schema } }));
        let mut response = json!({ "description": description });
        content.into_iter().for_each(|content| response["content"] = content);
        all.insert((*status).to_owned(), response);
    }
    json!({ "operationId": id, "summary": summary, "parameters": parameters, "responses": all })
}

fn refused(schemas: &mut SchemaGenerator, status: &'static str, why: &'static str) -> OperationResponse {
    (status, why, Some((JSON, schema::<ErrorAnswer>(schemas))))
}

/// Without a token.
fn open(mut operation: Value) -> Value {
    operation["security"] = json!([]);
    operation
}

fn with_body(mut operation: Value, kind: &str, schema: Value) -> Value {
    operation["requestBody"] = json!({ "required": true, "content": { kind: { "schema": schema } } });
    operation
}

fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn words(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

/// A parameter that can be given several times.
fn many(one: Value) -> Value {
    json!({ "type": "array", "items": one })
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

fn path_parameter(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema })
}

fn accepts_json() -> Value {
    let description = "Other requests are sent back to the page (303)";
    json!({ "name": "Accept", "in": "header", "required": true, "description": description, "schema": { "const": JSON } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_in_the_reference_is_that_of_the_types() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/reference/fleet-api.openapi.json");
        testing::golden::compare(path, &text());
    }

    #[test]
    fn descriptions_have_no_links_of_the_source() {
        let text = text();
        assert!(!text.contains("[`") && !text.contains("`]"), "{text}");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(keys) => {
                    found.extend(keys.get("$ref").and_then(Value::as_str));
                    keys.values().for_each(|value| references(value, found));
                }
                Value::Array(all) => all.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let (mut found, schemas) = (Vec::new(), document["components"]["schemas"].as_object().unwrap());
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let name = reference.strip_prefix(SCHEMAS).unwrap_or_else(|| panic!("{reference}"));
            assert!(schemas.contains_key(name), "{reference}");
        }
    }
}

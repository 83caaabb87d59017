// Package api embeds the contract's machine-readable documents.
package api

import _ "embed"

// OpenAPI is the description of the management API (OpenAPI 3.1).
//
//go:embed openapi.yaml
var OpenAPI []byte

// Errors has every code of the contract: {code, http, meaning, what_to_do}.
//
//go:embed errors.json
var Errors []byte

// EventsSchema describes every frame of the event socket (JSON Schema 2020-12, R6.12).
//
//go:embed events.schema.json
var EventsSchema []byte

// WorkersSchema describes every frame of the worker socket (JSON Schema 2020-12, §9).
//
//go:embed workers.schema.json
var WorkersSchema []byte

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// knock asks for an upgrade and returns the refusal.
func (n *node) knock(path string, header http.Header) (status int, code string, answer http.Header) {
	n.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(n.url, "ws")+path, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	var envelope struct {
		RequestID string `json:"request_id"`
		Error     struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		n.t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	if envelope.RequestID != resp.Header.Get("X-Request-ID") || resp.Header.Get("Cache-Control") != "no-store" || envelope.Error.Message == "" {
		n.t.Errorf("%d %s: not the envelope, headers %v", resp.StatusCode, body, resp.Header)
	}
	return resp.StatusCode, envelope.Error.Code, resp.Header
}

func upgradeHeader(token string, change ...func(http.Header)) http.Header {
	h := http.Header{
		"Authorization": {"Bearer " + token}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {"orbit.events.v1"},
	}
	for _, c := range change {
		c(h)
	}
	return h
}

func TestRefusalsBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	reader := db.TenantWith(t, queue.Create{Name: "main"}, []access.Action{access.EventsRead, access.EventsManage})
	n := startNode(t, db)
	other := access.FormatToken(tenant.CredentialID, ids.NewSecret())
	set := func(name string, values ...string) func(http.Header) {
		return func(h http.Header) { h[http.CanonicalHeaderKey(name)] = values }
	}
	for name, c := range map[string]struct {
		path   string
		token  string
		change []func(http.Header)
		status int
		code   string
	}{
		"a query parameter":            {"/v1/events/connect?token=x", tenant.Token, nil, 400, "INVALID_ARGUMENT"},
		"an empty query":               {"/v1/events/connect?", tenant.Token, nil, 400, "INVALID_ARGUMENT"},
		"query before origin":          {"/v1/events/connect?a", "x", []func(http.Header){set("Origin", "https://elsewhere.example")}, 400, "INVALID_ARGUMENT"},
		"another site's origin":        {"/v1/events/connect", tenant.Token, []func(http.Header){set("Origin", "https://elsewhere.example")}, 403, "PERMISSION_DENIED"},
		"a null origin":                {"/v1/events/connect", tenant.Token, []func(http.Header){set("Origin", "null")}, 403, "PERMISSION_DENIED"},
		"origin before protocol":       {"/v1/events/connect", tenant.Token, []func(http.Header){set("Origin", "https://elsewhere.example"), set("Sec-Websocket-Protocol")}, 403, "PERMISSION_DENIED"},
		"no subprotocol":               {"/v1/events/connect", tenant.Token, []func(http.Header){set("Sec-Websocket-Protocol")}, 426, "PROTOCOL_REQUIRED"},
		"another subprotocol":          {"/v1/events/connect", tenant.Token, []func(http.Header){set("Sec-Websocket-Protocol", "orbit.workers.v1")}, 426, "PROTOCOL_REQUIRED"},
		"no upgrade":                   {"/v1/events/connect", tenant.Token, []func(http.Header){set("Upgrade"), set("Connection", "keep-alive")}, 426, "PROTOCOL_REQUIRED"},
		"protocol before token":        {"/v1/events/connect", "x", []func(http.Header){set("Sec-Websocket-Protocol")}, 426, "PROTOCOL_REQUIRED"},
		"no token":                     {"/v1/events/connect", "", []func(http.Header){set("Authorization")}, 401, "UNAUTHENTICATED"},
		"two tokens":                   {"/v1/events/connect", "", []func(http.Header){set("Authorization", "Bearer "+tenant.Token, "Bearer "+tenant.Token)}, 401, "UNAUTHENTICATED"},
		"a malformed token":            {"/v1/events/connect", "orbit_x", nil, 401, "UNAUTHENTICATED"},
		"another secret":               {"/v1/events/connect", other, nil, 401, "UNAUTHENTICATED"},
		"basic authentication":         {"/v1/events/connect", "", []func(http.Header){set("Authorization", "Basic b3JiaXQ6eA==")}, 401, "UNAUTHENTICATED"},
		"a cookie instead of a token":  {"/v1/events/connect", "", []func(http.Header){set("Authorization"), set("Cookie", "token="+tenant.Token)}, 401, "UNAUTHENTICATED"},
		"no events:consume":            {"/v1/events/connect", reader.Token, nil, 403, "PERMISSION_DENIED"},
		"no workers:execute":           {"/v1/workers/connect", reader.Token, []func(http.Header){set("Sec-Websocket-Protocol", "orbit.workers.v1")}, 403, "PERMISSION_DENIED"},
		"events protocol for a worker": {"/v1/workers/connect", tenant.Token, nil, 426, "PROTOCOL_REQUIRED"},
	} {
		status, code, _ := n.knock(c.path, upgradeHeader(c.token, c.change...))
		if status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, status, code, c.status, c.code)
		}
	}
	n.events(tenant.Token, db.Subscribe(t, tenant, subscription.Create{}), 1) // none of it hurt the node
}

func TestOwnOriginIsLetIn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	n := startNode(t, db)
	dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}}
	ws, _, err := dialer.Dial(n.url+"/v1/events/connect", http.Header{
		"Authorization": {"Bearer " + tenant.Token}, "Origin": {"http://" + strings.TrimPrefix(n.url, "ws://")},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.Close()
}

func TestRoomIsBounded(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db, func(c *config) { c.EventConns = 2 })
	first := n.events(tenant.Token, sub, 1)
	n.events(tenant.Token, sub, 1)
	status, code, header := n.knock("/v1/events/connect", upgradeHeader(tenant.Token))
	if status != 429 || code != "CAPACITY_EXCEEDED" || header.Get("Retry-After") != "1" {
		t.Errorf("third connection: %d %s %v", status, code, header)
	}
	if status, _, _ := n.knock("/v1/events/connect", upgradeHeader("x")); status != 401 {
		t.Errorf("an unknown caller learns of the room: %d", status)
	}
	_ = first.ws.Close()
	for n.g.eventDoor.Open() > 1 {
		continue
	}
	n.events(tenant.Token, sub, 1)
}

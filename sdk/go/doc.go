// Package orbit is the Go SDK of Orbit, which runs tasks and delivers their results reliably.
//
//   - [Client] calls the management API: queues, tasks, subscriptions, delivery history.
//   - [Consumer] receives result events over one self-healing connection, hands each to a handler and
//     acknowledges it after the handler has saved it. [DialEvents] is the connection beneath it.
//   - [Worker] executes tasks of one queue. [DialWorker] is the connection beneath it.
//   - Package inbox saves events exactly once per receiver in the receiver's own database.
//   - Package orbittest gives tests a real Orbit of their own, or one in memory.
//
// Delivery is at-least-once: a closed connection, a late write or a lost answer can make the same event
// arrive again. A receiver de-duplicates by [ResultEvent.ID] in its own transaction (package inbox does),
// never by task id, because one task may have several authoritative results over time.
//
// Ids are 32 lowercase hex characters. Counts and versions that can pass 2^53 are decimal strings
// ([Counter]). Business JSON (task input and result) is sent and received byte for byte.
package orbit

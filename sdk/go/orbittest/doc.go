// Package orbittest lets an application test its use of Orbit.
//
//   - [Start] runs a private real stack: database, management and gateway, each a process of its own, gone
//     when the test ends. It needs Orbit's programs (see [Options]) and a MariaDB or MySQL server program.
//   - [NewFake] answers the same HTTP API and both sockets inside the test process, in memory, in a
//     millisecond. Clients, consumers and workers run against it unchanged. It also does on request what a
//     real one does rarely: cut connections, lose answers, lapse leases, be away.
//
// Both give an [Endpoint], and both pass the same conformance tests. Use the fake for logic, and the stack
// for what depends on real processes, real time and a real database.
package orbittest

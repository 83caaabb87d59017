package upgrade

// Apart runs f on a goroutine of its own and waits for it; a panic is the caller's. What needs a deep
// stack once, like a query before a connection's long idle life, leaves the caller's stack small.
func Apart(f func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	if p := <-done; p != nil {
		panic(p)
	}
}

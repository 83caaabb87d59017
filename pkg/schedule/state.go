package schedule

// Move is a command on a schedule.
type Move string

// The commands of R10.1. A publish needs a draft besides.
const (
	MoveUpdate  Move = "update"
	MovePublish Move = "publish"
	MovePause   Move = "pause"
	MoveResume  Move = "resume"
	MoveRun     Move = "run"
)

// moves is the state machine; what is missing is refused.
//
//	        publish          pause
//	DRAFT ──────────▶ ENABLED ─────▶ PAUSED
//	                     ▲   resume    │
//	                     └─────────────┘
//
// update and run change no state, publish none but DRAFT; pausing a PAUSED one and resuming an ENABLED one
// are commands like any other.
var moves = map[State]map[Move]State{
	Draft:   {MoveUpdate: Draft, MovePublish: Enabled},
	Enabled: {MoveUpdate: Enabled, MovePublish: Enabled, MovePause: Paused, MoveResume: Enabled, MoveRun: Enabled},
	Paused:  {MoveUpdate: Paused, MovePublish: Paused, MovePause: Paused, MoveResume: Enabled, MoveRun: Paused},
}

// States and Moves list all of them.
var (
	States = []State{Draft, Enabled, Paused}
	Moves  = []Move{MoveUpdate, MovePublish, MovePause, MoveResume, MoveRun}
)

// Next is where a command leads; ok is false where it is refused.
func Next(from State, m Move) (to State, ok bool) {
	to, ok = moves[from][m]
	return to, ok
}

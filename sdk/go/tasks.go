package orbit

// TaskState is the state of a task (R8.3).
type TaskState = string

// RetrySafety says whether a lost attempt may be repeated (R8.4).
type RetrySafety = string

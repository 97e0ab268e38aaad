// This file is empty on purpose. With an assembly file in the package, the compiler accepts a function without
// a body: newContext in layout.go, which is asynq's.

package hook

// Over reports whether f has ended its attempt, or has found it over.
func (f *Finish) Over() bool { return f.over }

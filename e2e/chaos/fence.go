package chaos

// checkFences checks the fences of all runs, and then the effects of each resource in the order of
// their writing. A fence is the clock of a Redis server in us, so two masters may give the same one.
func (c *checker) checkFences() {
	type grant struct {
		resource string
		fence    int64
	}
	given, shared := make(map[grant]Run), make(map[grant]bool)
	for _, r := range c.Runs {
		if r.Resource == "" {
			continue
		}
		g := grant{r.Resource, r.Fence}
		if other, twice := given[g]; twice {
			if c.twoMasters(other, r) || oneBatch(other, r) {
				shared[g] = true
			} else {
				c.wrong("fence %d of %s was given to %s on %s and %s on %s", r.Fence, r.Resource, other.Task, other.Process, r.Task, r.Process)
			}
		}
		given[g] = r
	}
	last := make(map[string]Effect)
	for _, e := range c.Effects {
		if e.Resource == "" {
			continue
		}
		before := last[e.Resource]
		if e.Fence < before.Fence || e.Fence == before.Fence && !shared[grant{e.Resource, e.Fence}] {
			c.wrong("the effect of %s on %s has fence %d, that of %s before it %d", e.Task, e.Resource, e.Fence, before.Task, before.Fence)
		}
		last[e.Resource] = e
	}
}

// twoMasters reports whether two servers may have granted a lock to a and b.
func (c *checker) twoMasters(a, b Run) bool {
	return c.firstFault(func(f *Fault) bool {
		return f.Kind.trait().twoMasters && f.Start <= min(a.Begin, b.Begin) && max(a.Begin, b.Begin) <= f.End+belief
	}) != nil
}

package inspect

import (
	"cmp"
	"slices"
	"strings"
)

// Orders are what [Sort] can sort by: the most waiters, the longest wait, the least lease left, the name of the resource, and the
// longest held.
func Orders() []string { return []string{"waiters", "oldest", "left", "resource", "since"} }

// Sort sorts locks by one of [Orders], and those that are equal by resource. A lock without a lease, or without a holder, comes
// after those that have one. Locks stay as they are for an unknown order.
func Sort(locks []Lock, order string) {
	compare := map[string]func(a, b *Lock) int{
		"waiters": func(a, b *Lock) int { return cmp.Compare(b.Waiting, a.Waiting) },
		"oldest":  func(a, b *Lock) int { return cmp.Compare(b.OldestWait, a.OldestWait) },
		"left":    func(a, b *Lock) int { return cmp.Or(falseFirst(a.Left == 0, b.Left == 0), cmp.Compare(a.Left, b.Left)) },
		"since": func(a, b *Lock) int {
			return cmp.Or(falseFirst(a.Since.IsZero(), b.Since.IsZero()), a.Since.Compare(b.Since))
		},
		"resource": func(*Lock, *Lock) int { return 0 },
	}[order]
	if compare == nil {
		return
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Or(compare(&a, &b), strings.Compare(a.Resource, b.Resource)) })
}

// falseFirst compares so that true comes last.
func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

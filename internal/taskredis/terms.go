package taskredis

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Terms are the settings that the servers of a queue should have alike, in words. Each server writes its own into its entry.
// Servers whose Prefix or Store differs do not see each other's locks. The others make tasks run by different rules.
type Terms struct {
	Prefix   string            `json:"prefix"` // of the keys of locks
	Store    string            `json:"store"`  // what keeps the locks
	TTL      string            `json:"ttl"`
	Limits   map[string]string `json:"limits,omitempty"`   // by pattern
	Policies map[string]string `json:"policies,omitempty"` // by kind of task
}

// readTerms returns nil for what a later release may write.
func readTerms(text []byte) *Terms {
	t := new(Terms)
	if json.Unmarshal(text, t) != nil {
		return nil
	}
	return t
}

// A Disagreement is a setting that servers with a queue in common do not have alike.
type Disagreement struct {
	Setting string // as the settings of the programs are called, such as "lock.prefix" or "limits: account:*"
	// Locks says that these servers do not see each other's locks: tasks of one resource may run at once.
	Locks  bool
	Queues []string // that some of them have in common
	Values []Said
}

// Said is a value of a setting, and the servers that have it.
type Said struct {
	Value   string // "none" if they have none
	Servers []*ServerInfo
}

// Disagreements lists the settings that servers with a queue in common do not have alike, those of locks first. Servers that
// do not tell their [Terms] are left out.
func Disagreements(servers []*ServerInfo) []Disagreement {
	found := make(map[string]*Disagreement)
	byQueue := make(map[string][]*ServerInfo)
	for _, s := range servers {
		for queue := range s.Queues {
			if s.Terms != nil {
				byQueue[queue] = append(byQueue[queue], s)
			}
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(byQueue)) {
		names := make(map[string]bool)
		all := make([]map[string]string, len(byQueue[queue]))
		for n, s := range byQueue[queue] {
			all[n] = s.Terms.values()
			for name := range all[n] {
				names[name] = true
			}
		}
		for name := range names {
			if slices.ContainsFunc(all, func(v map[string]string) bool { return v[name] != all[0][name] }) {
				d := found[name]
				if d == nil {
					d = &Disagreement{Setting: name, Locks: name == settingPrefix || name == settingStore}
					found[name] = d
				}
				d.Queues = append(d.Queues, queue)
				for n, s := range byQueue[queue] {
					d.add(cmp.Or(all[n][name], "none"), s)
				}
			}
		}
	}
	sorted := make([]Disagreement, 0, len(found))
	for _, d := range found {
		slices.SortFunc(d.Values, func(a, b Said) int { return strings.Compare(a.Value, b.Value) })
		sorted = append(sorted, *d)
	}
	slices.SortFunc(sorted, func(a, b Disagreement) int {
		switch {
		case a.Locks == b.Locks:
			return strings.Compare(a.Setting, b.Setting)
		case a.Locks:
			return -1
		default:
			return 1
		}
	})
	return sorted
}

const (
	settingPrefix = "lock.prefix"
	settingStore  = "store"
)

// values returns all that the terms say, by the name of the setting.
func (t *Terms) values() map[string]string {
	all := map[string]string{settingPrefix: t.Prefix, settingStore: t.Store, "lock.ttl": t.TTL}
	for pattern, limit := range t.Limits {
		all["limits: "+pattern] = limit
	}
	for kind, policy := range t.Policies {
		all["policies: "+kind] = policy
	}
	return all
}

// Of returns the value that a server has.
func (d *Disagreement) Of(s *ServerInfo) string {
	for _, v := range d.Values {
		if slices.Contains(v.Servers, s) {
			return v.Value
		}
	}
	return ""
}

// add adds a server that has a value.
func (d *Disagreement) add(value string, s *ServerInfo) {
	n := slices.IndexFunc(d.Values, func(h Said) bool { return h.Value == value })
	if n < 0 {
		n, d.Values = len(d.Values), append(d.Values, Said{Value: value})
	}
	if !slices.Contains(d.Values[n].Servers, s) {
		d.Values[n].Servers = append(d.Values[n].Servers, s)
	}
}

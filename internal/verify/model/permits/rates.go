package permits

// free is free_permit of permits.lua. It returns the number of a permit that the limit and the rates allow
// to grant or reserve. For none it returns -1 and, if that is because of the rates, in how many ticks
// there is one.
func (m *Model) free(s *State, rule Rule) (n int, later uint8) {
	used, reservations := s.used()
	if m.Mistake == ReservedUncounted {
		used -= reservations
	}
	if used >= int(rule.Limit) && m.Mistake != LimitUnchecked {
		return -1, 0
	}
	if later = m.nextStart(s, m.RatesOf(rule), uint8(reservations)); later > 0 {
		return -1, later
	}
	return s.of(Free, 0), 0
}

// nextStart returns in how many ticks the rates allow another start, 0 for now. Each reservation is a
// start that may come at any time.
func (m *Model) nextStart(s *State, rates []Rate, reservations uint8) (later uint8) {
	if m.Mistake == RateUnchecked {
		return 0
	}
	reservations += s.Extra
	if m.Mistake == RateReservedFree || m.Mistake == StartsWhenReserved {
		reservations = 0
	}
	for n, r := range rates {
		if n > 0 && m.Mistake == OneRate {
			break
		}
		if r.Starts <= reservations {
			later = max(later, r.Period)
		} else if age := s.Starts[r.Starts-reservations-1]; age > 0 && age-1 < r.Period {
			later = max(later, r.Period-(age-1))
		}
	}
	return later
}

// plan has a client sweep the lock in so many ticks, unless it does so before that.
func (m *Model) plan(s *State, later uint8, answered bool) {
	if later > 0 && answered && m.Mistake != NobodyLooksAgain && (s.Plan == 0 || later < s.Plan-1) {
		s.Plan = later + 1
	}
}

// log logs a start so many ticks ago. The log has as many starts as the rates count.
func (m *Model) log(s *State, age uint8, rates []Rate) {
	kept, most := longest(rates)
	for _, r := range rates {
		if m.Mistake == LogExpiresEarly {
			kept = min(kept, r.Period)
		}
	}
	if m.Mistake == LogTooShort {
		most--
	}
	copy(s.Starts[1:], s.Starts[:])
	s.Starts[0] = age + 1
	clear(s.Starts[most:])
	s.Kept = kept
}

// tick is a second that passes.
func (m *Model) tick(s *State) {
	s.Swept = false
	if s.Plan > 1 {
		s.Plan--
	}
	if m.room(s) {
		s.Wasted++
	} else {
		s.Wasted = 0
	}
	period, _ := longest(m.Rates)
	changed, _ := longest(m.NewRates)
	period = max(period, changed)
	for n, age := range s.Starts {
		if age > 0 {
			s.Starts[n]++
		}
		if age >= period { // no rate counts it any more
			s.Starts[n] = 0
		}
	}
	if s.Kept > 0 {
		s.Kept--
	}
	if s.Kept == 0 {
		s.Starts = [maxStarts]uint8{}
	}
	copy(s.True[1:], s.True[:])
	s.True[0] = 0
	clear(s.True[period:])
	s.Known = min(s.Known+1, maxPeriod)
}

// read is what changes when all servers have read the rule. The log has no more starts than the old
// rates counted. So it may know too few for higher ones.
func (m *Model) read(s *State) {
	period, most := longest(m.RatesOf(s.Old))
	if nowPeriod, nowMost := longest(m.RatesOf(s.Rule)); nowPeriod > period || nowMost > most {
		s.Known = 0
	}
	s.Old = s.Rule
}

// room reports whether somebody waits although the limit and the rates allow another start, by what really
// happened. It does so only once all servers know the limit.
func (m *Model) room(s *State) bool {
	used, reservations := s.used()
	if m.first(s, 0) == 0 || used >= int(s.Rule.Limit) || s.Old != s.Rule {
		return false
	}
	for _, r := range m.RatesOf(s.Rule) {
		if s.starts(r)+reservations >= int(r.Starts) {
			return false
		}
	}
	return true
}

// starts returns how many really started in the last period of a rate.
func (s *State) starts(r Rate) (count int) {
	for _, n := range s.True[:r.Period] {
		count += int(n)
	}
	return count
}

package permits

// A Mistake is one that could be made in the protocol. A model with a mistake must fail.
type Mistake string

// The mistakes that the model knows.
const (
	None               Mistake = ""
	LimitUnchecked     Mistake = "a grant does not compare the permits with the limit"
	ReservedUncounted  Mistake = "a reserved permit does not count for the limit"
	HandsOffLowered    Mistake = "a release hands its permit on although the limit was lowered"
	StartsLowered      Mistake = "a waiter starts by its reservation although the limit was lowered"
	LoweringCancels    Mistake = "a lowered limit takes permits away"
	ReservedTwice      Mistake = "a second permit is reserved for a waiter that comes already"
	RepeatTakesAnother Mistake = "a repeated call does not look for the permit that it has taken"
	ReleaseOfAnothers  Mistake = "a release does not compare the token"
	TrustsTooLong      Mistake = "a holder trusts its permit after that has expired"
	FencePerPermit     Mistake = "a grant beside another holder uses the fence of that one"
	JumpsQueue         Mistake = "a task that asks takes a free permit before those that wait"
	MarkGoesEarly      Mistake = "the mark goes with the first permit"
	NoHandOff          Mistake = "a release frees its permit and reserves it for nobody"
	NoSweeper          Mistake = "nobody looks at the permits that tasks wait for"
	SweepsOnce         Mistake = "the sweeper leaves a limited lock alone while a permit is in use"
	ReleasesTwice      Mistake = "a repeated release does not compare the token"
	OldRuleForever     Mistake = "a server never reads the overrides"

	RateUnchecked        Mistake = "nobody looks at the rates"
	RateReservedFree     Mistake = "a reserved permit does not count for the rates"
	OneRate              Mistake = "of two rates only the first counts"
	StartsSlowed         Mistake = "a waiter starts by its reservation although the rates were lowered"
	RefusedIsExpired     Mistake = "a woken waiter that may not start counts as one whose reservation has expired"
	LogTooShort          Mistake = "the log of starts has one too few"
	LogExpiresEarly      Mistake = "the log of starts expires after the shortest period"
	LogGoesWithLast      Mistake = "the log of starts goes with the last permit"
	PauseDropsLog        Mistake = "a pause deletes the log of starts"
	StartsWhenReserved   Mistake = "a start has the time of its reservation"
	StartsWhenReleased   Mistake = "a start is logged when its holder ends"
	ClockOfWorker        Mistake = "a start has the time of its worker, whose clock is behind"
	NobodyLooksAgain     Mistake = "nobody looks at the time of the next start"
	ExpiredCountsForever Mistake = "a reservation that has expired stays in the log as a start that may come"
)

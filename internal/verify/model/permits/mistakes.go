package permits

// A Mistake is one that could be made in the protocol. A model with a mistake must fail.
type Mistake string

// The mistakes that the model knows.
const (
	None               Mistake = ""
	LimitUnchecked     Mistake = "a grant does not compare the permits with the limit"
	ReservedUncounted  Mistake = "a reserved permit does not count for the limit"
	HandsOffLowered    Mistake = "a release hands its permit on although the limit was lowered"
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
)

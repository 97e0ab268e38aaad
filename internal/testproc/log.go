package testproc

import "os"

// LogTail returns the end of a log, as much of it as a failed test shows, or why
// it cannot be read.
func LogTail(path string) []byte {
	const shown = 8 << 10
	log, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-shown):]
}

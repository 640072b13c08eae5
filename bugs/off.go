//go:build !bugs

package bugs

// On is false: there are no bugs in this build.
func On(Bug) bool { return false }

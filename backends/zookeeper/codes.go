package zookeeper

import "strings"

// codeError is an error for which the library has only a code.
type codeError string

const (
	errConnectionLoss   codeError = "ConnectionLoss (-4)"
	errUnimplemented    codeError = "Unimplemented (-6)"
	errOperationTimeout codeError = "OperationTimeout (-7)"
	errRequestTimeout   codeError = "RequestTimeout (-122)"
	errQuotaExceeded    codeError = "QuotaExceeded (-125)"
	errThrottled        codeError = "ThrottledOp (-127)"
)

func (e codeError) Error() string { return string(e) }

// named replaces an error of the library that has only a code.
func named(err error) error {
	if err == nil {
		return nil
	}
	_, code, _ := strings.Cut(err.Error(), "unknown error: ")
	for _, e := range []codeError{errConnectionLoss, errUnimplemented, errOperationTimeout, errRequestTimeout, errQuotaExceeded, errThrottled} {
		if strings.HasSuffix(string(e), " ("+code+")") {
			return e
		}
	}
	return err
}

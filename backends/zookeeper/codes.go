package zookeeper

import "strings"

// codeError is the code of an error for which the library has no name.
type codeError string

const (
	errConnectionLoss   codeError = "-4"
	errUnimplemented    codeError = "-6"
	errOperationTimeout codeError = "-7"
	errRequestTimeout   codeError = "-122"
	errQuotaExceeded    codeError = "-125"
	errThrottled        codeError = "-127"
)

var codeNames = map[codeError]string{
	errConnectionLoss: "ConnectionLoss", errUnimplemented: "Unimplemented", errOperationTimeout: "OperationTimeout",
	errRequestTimeout: "RequestTimeout", errQuotaExceeded: "QuotaExceeded", errThrottled: "ThrottledOp",
}

func (e codeError) Error() string { return codeNames[e] + " (" + string(e) + ")" }

// named replaces an error of the library that has only a code.
func named(err error) error {
	if err == nil {
		return nil
	}
	_, code, _ := strings.Cut(err.Error(), "unknown error: ")
	if codeNames[codeError(code)] != "" {
		return codeError(code)
	}
	return err
}

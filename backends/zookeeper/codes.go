package zookeeper

import "strings"

// codeError is the code of an error for which the library has no name.
type codeError string

const (
	errUnimplemented codeError = "-6"
	errQuotaExceeded codeError = "-125"
)

// codeNames has the names that ZooKeeper 3.9 gives the codes.
var codeNames = map[codeError]string{
	"-1": "SystemError", "-2": "RuntimeInconsistency", "-3": "DataInconsistency", "-4": "ConnectionLoss",
	"-5": "MarshallingError", errUnimplemented: "Unimplemented", "-7": "OperationTimeout",
	"-12": "UnknownSession", "-13": "NewConfigNoQuorum", "-14": "ReconfigInProgress",
	"-113": "InvalidCallback", "-119": "NotReadOnly", "-120": "EphemeralOnLocalSession",
	"-121": "NoWatcher", "-122": "RequestTimeout", "-124": "SessionClosedRequireSaslAuth",
	errQuotaExceeded: "QuotaExceeded", "-127": "ThrottledOp",
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

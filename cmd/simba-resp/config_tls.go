package main

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp/credentials"
)

// tlsLive are the TLS settings that can change at run time, all at once.
var tlsLive = []string{"tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "tls-min-version"}

// checkTLS reports errors of the TLS settings, apart from the content of the files.
func (c *config) checkTLS(refuse func(name, format string, args ...any)) {
	if c.TLSAddr == "" {
		return
	}
	for _, name := range []string{"tls-cert-file", "tls-key-file"} {
		if c.field(name).isInitial() {
			refuse(name, "--tls-addr needs it")
		}
	}
	switch {
	case c.TLSAuthClients == authNo && c.TLSCACertFile != "":
		// Without client certificates the authority would have no effect.
		refuse("tls-ca-cert-file", "it needs --tls-auth-clients optional or yes")
	case c.TLSAuthClients != authNo && c.TLSCACertFile == "":
		refuse("tls-ca-cert-file", "--tls-auth-clients %s needs it", c.TLSAuthClients)
	}
}

// checkFiles returns the errors of the TLS files of clients and of members, if c names them.
func (c *config) checkFiles() (wrong configErrors) {
	_, err := loadTLS(c)
	_, ofMembers := c.clusterTLS()
	for _, err := range []error{err, ofMembers} {
		var files credentials.Errors
		errors.As(err, &files) // there is no other error
		wrong = append(wrong, files...)
	}
	return wrong
}

// tlsWarning returns a warning about the dates of the certificate, "" if they need none.
func (c *config) tlsWarning() string {
	l, err := loadTLS(c)
	if l == nil || err != nil {
		return "" // no TLS, or the files have changed since loadConfig
	}
	return l.warning(time.Now())
}

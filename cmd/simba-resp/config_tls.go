package main

import (
	"strings"
	"time"
)

// tlsLive are the settings of TLS that can change while the server runs, together.
var tlsLive = []string{"tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "tls-min-version"}

// tlsFaults tells what is wrong with the settings of TLS, whatever the files hold.
func (c *config) tlsFaults(fault func(name, format string, args ...any)) {
	given := func(name string) bool { return !fieldOf(name).isInitial(c) }
	if c.TLSAddr == "" {
		for _, name := range tlsLive {
			if given(name) {
				fault(name, "it needs --tls-addr: nobody speaks TLS without it")
			}
		}
		return
	}
	switch open, err := opensToOthers(c.TLSAddr); {
	case err != nil:
		fault("tls-addr", "%w", err)
	case c.TLSAddr == c.Addr && !strings.HasSuffix(c.Addr, ":0"):
		fault("tls-addr", "%s is --addr too", c.TLSAddr)
	case open && !c.judgesClients() && c.TLSAuthClients != authYes:
		fault("tls-addr", "%s is open to other machines, or may be: set --tls-auth-clients yes, --requirepass-file or --requirepass or --aclfile, or --insecure to serve everybody", c.TLSAddr)
	}
	for _, name := range []string{"tls-cert-file", "tls-key-file"} {
		if !given(name) {
			fault(name, "--tls-addr needs it")
		}
	}
	switch {
	case c.TLSAuthClients == authNo && c.TLSCACertFile != "":
		// Who names an authority wants it to be asked.
		fault("tls-ca-cert-file", "it needs --tls-auth-clients optional or yes")
	case c.TLSAuthClients != authNo && c.TLSCACertFile == "":
		fault("tls-ca-cert-file", "--tls-auth-clients %s needs it", c.TLSAuthClients)
	}
}

// tlsFilesFaults tells what is wrong with the files, if TLS is served and they are named.
func (c *config) tlsFilesFaults() faults {
	if c.TLSAddr == "" || c.TLSCertFile == "" || c.TLSKeyFile == "" {
		return nil
	}
	_, wrong := loadTLS(c)
	return wrong
}

// tlsWarning is what an operator should know of a certificate that is in order otherwise.
func (c *config) tlsWarning() string {
	if c.TLSAddr == "" {
		return ""
	}
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return "" // by now it is another than loadConfig found
	}
	return l.warning(time.Now())
}

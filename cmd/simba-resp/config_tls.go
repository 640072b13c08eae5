package main

import "time"

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

// checkTLSFiles returns the errors of the TLS files, if c names them.
func (c *config) checkTLSFiles() configErrors {
	if c.TLSAddr == "" || c.TLSCertFile == "" || c.TLSKeyFile == "" {
		return nil
	}
	_, wrong := loadTLS(c)
	return wrong
}

// tlsWarning returns a warning about the dates of the certificate, "" if they need none.
func (c *config) tlsWarning() string {
	if c.TLSAddr == "" {
		return ""
	}
	l, wrong := loadTLS(c)
	if len(wrong) > 0 {
		return "" // the files have changed since loadConfig
	}
	return l.warning(time.Now())
}

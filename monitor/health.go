package monitor

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Health is the body of /readyz, in JSON.
type Health struct {
	Ready bool `json:"ready"`
	// State is "starting", "running" or "stopping".
	State string `json:"state"`
	// Store says that the store answered a probe. With the engine embedded, the store is the disk. Of
	// a cluster, the leader answers, and the others say whether there is a leader.
	Store bool `json:"store"`
	// RecoveryDelay is the rest of the recovery delay, in seconds. During the delay the server is
	// ready, since owners can renew.
	RecoveryDelay float64 `json:"recovery_delay_seconds"`
	// Error says why the store did not answer. Only a user who may run INFO gets it and Faults.
	Error string `json:"error,omitempty"`
	// Faults says what is wrong with the store's settings. Even if no tenure may begin, the server
	// is ready, since owners can renew.
	Faults []string `json:"store_faults,omitempty"`
}

// live replies that the process serves requests. It does not probe the store, because a restart of
// this process would not repair the store.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // fails if the client has left
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	h := s.health(r)
	w.Header().Set("Content-Type", "application/json")
	if !h.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h) // fails if the client has left
}

// leader is ready on the leader of a cluster, or on a single server. Other members reply 404.
func (s *Server) leader(w http.ResponseWriter, r *http.Request) {
	if o := s.opened.Load(); o != nil && !o.cluster().Serves {
		http.Error(w, "this member does not lead", http.StatusNotFound)
		return
	}
	s.ready(w, r)
}

func (s *Server) health(r *http.Request) Health {
	o := s.opened.Load()
	if o == nil {
		return Health{State: "starting"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), probeWait)
	defer cancel()
	h := Health{State: "running", RecoveryDelay: o.Backend.Stats().RecoveryDelay.Seconds()}
	err := o.prober.check(ctx)
	h.Store = err == nil
	if s.draining.Load() {
		h.State = "stopping"
	}
	h.Ready = h.Store && h.State == "running"
	var faults []proxy.Fault
	if o.Faults != nil {
		faults = o.Faults()
	}
	if (err != nil || faults != nil) && o.Commands.MayRun(r.Context(), credentials(r), metricsCommand) {
		if err != nil {
			h.Error = err.Error()
		}
		h.Faults = proxy.Texts(faults)
	}
	return h
}

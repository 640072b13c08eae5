package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/simbatest"
)

// keeping is an exporter in memory that keeps its spans after Shutdown.
type keeping struct{ *tracetest.InMemoryExporter }

func (keeping) Shutdown(context.Context) error { return nil }

func TestSpansShowTheWaitTheTenureAndTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		if err := rdb.Do(t.Context(), "SIMBA.ACQUIRE", *mutex, "another", time.Hour.Milliseconds()).Err(); err != nil {
			t.Fatal(err)
		}
		*work = time.Minute
		spans := keeping{tracetest.NewInMemoryExporter()}
		if err := run(t.Context(), rdb, spans); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]tracetest.SpanStub)
		for _, s := range spans.GetSpans() {
			got[s.Name] = s
		}
		report := got["report"]
		if len(report.Events) != 1 || report.Events[0].Name != "simba contended" {
			t.Errorf("the caller's span has the events %v, want one, simba contended", report.Events)
		}
		for name, took := range map[string]time.Duration{
			"simba acquire": time.Hour, "simba work": time.Minute, "simba hold": time.Minute,
		} {
			s := got[name]
			if lasted := s.EndTime.Sub(s.StartTime); lasted < took || lasted > took+time.Second {
				t.Errorf("the span %s lasts %v, want %v", name, lasted, took)
			}
			if s.Parent.SpanID() != report.SpanContext.SpanID() || s.Status.Code != codes.Unset {
				t.Errorf("the span %s has the parent %v and the status %v, want the parent %v and no status", name, s.Parent.SpanID(), s.Status, report.SpanContext.SpanID())
			}
		}
	})
}

func TestSpanOfALostTenureHasAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		*work = time.Hour
		time.AfterFunc(time.Minute, func() { rdb.Do(context.Background(), "SIMBA.BREAK", *mutex) })
		var out bytes.Buffer
		exporter, err := stdouttrace.New(stdouttrace.WithWriter(&out))
		if err != nil {
			t.Fatal(err)
		}
		spans := keeping{tracetest.NewInMemoryExporter()}
		both := exporters{exporter, spans}
		if err := run(t.Context(), rdb, both); !errors.Is(err, client.ErrLost) {
			t.Errorf("run returns %v, want ErrLost", err)
		}
		for _, s := range spans.GetSpans() {
			if s.Name == "simba hold" && s.Status.Code != codes.Error {
				t.Errorf("the span of a lost tenure has the status %v, want an error", s.Status)
			}
		}
		if !strings.Contains(out.String(), `"Name":"simba hold"`) {
			t.Errorf("the program has not printed the span simba hold:\n%s", &out)
		}
	})
}

// exporters exports to each of its exporters.
type exporters []sdk.SpanExporter

func (all exporters) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) (err error) {
	for _, e := range all {
		err = errors.Join(err, e.ExportSpans(ctx, spans))
	}
	return err
}

func (all exporters) Shutdown(ctx context.Context) (err error) {
	for _, e := range all {
		err = errors.Join(err, e.Shutdown(ctx))
	}
	return err
}

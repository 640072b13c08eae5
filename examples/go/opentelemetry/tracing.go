package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/simba-resp/simba-resp/client"
)

// hooks returns hooks that create a span for each wait, each tenure and each work. The parent of
// these spans is the span in the context of Do, Lock or Lead. A hook is called when its span ends.
// It computes the start from Took.
func hooks(tracer trace.Tracer) client.Hooks {
	span := func(name string) func(context.Context, client.HookEvent) {
		return func(ctx context.Context, e client.HookEvent) {
			end := time.Now()
			_, s := tracer.Start(ctx, name, trace.WithTimestamp(end.Add(-e.Took)), trace.WithAttributes(
				attribute.String("simba.mutex", e.Mutex),
				attribute.String("simba.contender", e.ID),
				attribute.Int64("simba.token", int64(e.Token)),
			))
			if e.Err != nil {
				s.SetStatus(codes.Error, e.Err.Error())
			}
			s.End(trace.WithTimestamp(end))
		}
	}
	return client.Hooks{
		// Add an event to the caller's span, since the span of the wait does not exist yet.
		Contended: func(ctx context.Context, e client.HookEvent) {
			trace.SpanFromContext(ctx).AddEvent("simba contended", trace.WithAttributes(
				attribute.String("simba.mutex", e.Mutex), attribute.String("simba.owner", e.Owner.ID)))
		},
		Acquired: span("simba acquire"), NotAcquired: span("simba acquire failed"),
		Released: span("simba hold"), Lost: span("simba hold"),
		WorkDone: span("simba work"),
	}
}

package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/simba-resp/simba-resp/client"
)

// spans are the names of the spans, by the event with which they end.
var spans = map[string]string{
	"Acquired": "simba acquire", "NotAcquired": "simba acquire failed",
	"Released": "simba hold", "Lost": "simba hold",
	"WorkDone": "simba work",
}

// hook returns a hook that creates a span for each wait, each tenure and each work. The parent of
// these spans is the span in the context of Do, Lock or Lead. The hook is called when a span ends. It
// computes the start from Took.
func hook(tracer trace.Tracer) func(context.Context, client.Event) {
	return func(ctx context.Context, e client.Event) {
		if e.Kind == "Contended" { // the span of the wait does not exist yet
			trace.SpanFromContext(ctx).AddEvent("simba contended", trace.WithAttributes(
				attribute.String("simba.mutex", e.Mutex), attribute.String("simba.owner", e.Owner.ID)))
		}
		name := spans[e.Kind]
		if name == "" {
			return
		}
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

// Package logging makes the services' logger: one JSON line per entry on standard error, or plain
// lines for a person at a terminal.
package logging

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Levels and Formats are what New accepts; an empty value means the first format and level info.
var (
	Levels  = []string{"debug", "info", "warn", "error"}
	Formats = []string{"json", "text"}
)

// New writes to standard error. It fails on a level or format that is not listed above and names
// what it accepts.
func New(level, format string) (*zap.Logger, error) { return NewTo(os.Stderr, level, format) }

// NewTo is New for another destination; writes to it are serialised.
func NewTo(w io.Writer, level, format string) (*zap.Logger, error) {
	if err := Check(level, format); err != nil {
		return nil, err
	}
	if level == "" {
		level = "info"
	}
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	core := zapcore.NewCore(encoder(format), zapcore.Lock(zapcore.AddSync(w)), at)
	return zap.New(core, zap.AddStacktrace(zapcore.DPanicLevel)), nil
}

// Check reports whether New would accept the values, so that a configuration can list all its faults.
func Check(level, format string) error {
	if level != "" && !slices.Contains(Levels, level) {
		return fmt.Errorf("log level must be one of %s, is %q", strings.Join(Levels, ", "), level)
	}
	if format != "" && !slices.Contains(Formats, format) {
		return fmt.Errorf("log format must be one of %s, is %q", strings.Join(Formats, ", "), format)
	}
	return nil
}

func encoder(format string) zapcore.Encoder {
	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey = "time"
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncodeDuration = func(d time.Duration, enc zapcore.PrimitiveArrayEncoder) { // milliseconds, to the microsecond
		enc.AppendFloat64(float64(d.Microseconds()) / 1000)
	}
	if format == "text" {
		cfg.EncodeDuration = zapcore.StringDurationEncoder
		cfg.EncodeLevel = zapcore.CapitalLevelEncoder
		return zapcore.NewConsoleEncoder(cfg)
	}
	return zapcore.NewJSONEncoder(cfg)
}

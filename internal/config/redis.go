package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// RedisOptions returns the options of a Redis client. It reads the password and certificate files; its
// errors name the place of the setting, and the file. Every call with a context ends with that context's
// deadline, and every one within the timeouts.
func (c Config) RedisOptions() (*redis.UniversalOptions, error) {
	r := c.Redis
	password, err := c.password("redis.password_file", r.Password, r.PasswordFile)
	if err != nil {
		return nil, err
	}
	sentinel, err := c.password("redis.sentinel_password_file", r.SentinelPassword, r.SentinelPasswordFile)
	if err != nil {
		return nil, err
	}
	opts := &redis.UniversalOptions{
		Addrs:                 r.Addrs,
		Username:              r.Username,
		Password:              password,
		DB:                    r.DB,
		MasterName:            r.MasterName,
		SentinelUsername:      r.SentinelUsername,
		SentinelPassword:      sentinel,
		IsClusterMode:         r.Cluster,
		DialTimeout:           r.DialTimeout,
		ReadTimeout:           r.Timeout,
		WriteTimeout:          r.Timeout,
		ContextTimeoutEnabled: true,
	}
	if r.TLS {
		if opts.TLSConfig, err = c.tlsConfig(); err != nil {
			return nil, err
		}
	}
	return opts, nil
}

// Failed adds to the error of a call to this Redis: its address, and a hint if there is one.
// The worker is the name of the program that has a Redis of its own; empty if that is of no help.
func (r Redis) Failed(worker string, err error) error {
	var hint string
	switch text := err.Error(); {
	case worker != "" && errors.Is(err, syscall.ECONNREFUSED):
		hint = " (without a Redis, " + worker + " --embedded runs on one of its own)"
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		hint = " (" + r.passwordHint(text) + ")"
	case strings.Contains(text, "DB index is out of range"):
		hint = fmt.Sprintf(" (redis.db: want a database that this Redis has, by default 0 to 15, have %d)", r.DB)
	case strings.Contains(text, "redis: invalid reply"), strings.Contains(text, "redis: can't parse"): // go-redis has no type for it
		hint = " (no Redis is at that address, or it talks TLS: redis.tls)"
	default:
		hint = r.modeHint(text)
	}
	return fmt.Errorf("redis %s: %w%s", strings.Join(r.Addrs, ","), err, hint)
}

// modeHint names the setting that takes this Redis for one of another kind, if a text of an error says so. A Redis without
// TLS waits for the rest of a command, for which it takes a handshake; one with TLS ends the connection of who begins without.
func (r Redis) modeHint(text string) string {
	ended := strings.HasSuffix(text, "EOF")
	switch lower := strings.ToLower(text); {
	case strings.Contains(text, "cluster support disabled"):
		return fmt.Sprintf(" (redis.cluster: want false for a Redis that is no Cluster, have %t)", r.Cluster)
	case !r.Cluster && strings.Contains(text, "MOVED "):
		return " (redis.cluster: want true for a Cluster, have false)"
	case strings.Contains(lower, "unknown command") && strings.Contains(lower, "sentinel"):
		return fmt.Sprintf(" (redis.master_name: want none for a Redis that is no Sentinel, have %s)", r.MasterName)
	case r.TLS && (ended || strings.Contains(text, "context deadline exceeded") || strings.Contains(text, "does not look like a TLS handshake")):
		return " (redis.tls: want false for a Redis without TLS, have true)"
	case !r.TLS && ended:
		return " (redis.tls: want true for a Redis with TLS, have false)"
	default:
		return ""
	}
}

// passwordHint names the settings to change after Redis or a Sentinel has refused, with the
// text, a wrong password or a missing one.
func (r Redis) passwordHint(text string) string {
	do, user, sentinelUser := "set ", "", ""
	noAuth := strings.Contains(text, "NOAUTH")
	if !noAuth {
		do, user, sentinelUser = "check ", "redis.username, and ", "redis.sentinel_username, and "
	}
	own := user + "SIDING_REDIS_PASSWORD or redis.password_file"
	sentinels := sentinelUser + "SIDING_REDIS_SENTINEL_PASSWORD or redis.sentinel_password_file"
	switch {
	case r.MasterName == "":
		return do + own
	case strings.Contains(text, "all sentinels"), // go-redis has no type for it
		noAuth && (r.Password != "" || r.PasswordFile != ""): // which the master would have accepted
		return "for the Sentinels, " + do + sentinels
	default:
		return do + own + "; for the Sentinels " + sentinels
	}
}

// password returns the password given, or the one in the file that the setting of the key names.
func (c Config) password(key string, given Secret, file string) (string, error) {
	if file == "" {
		return string(given), nil
	}
	text, err := c.read(key, file)
	// Editors end a file with a line feed, which is no part of the password.
	text = bytes.TrimRight(text, "\r\n")
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s: %s: want a password, have nothing", c.Place(key), file)
	}
	return string(text), err
}

// read returns the text of the file that the setting of the key names.
func (c Config) read(key, file string) ([]byte, error) {
	text, err := read(file)
	if err != nil {
		err = fmt.Errorf("%s: %w", c.Place(key), err)
	}
	return text, err
}

func (c Config) tlsConfig() (*tls.Config, error) {
	r := c.Redis
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.TLSServerName}
	if r.TLSCAFile != "" {
		text, err := c.read("redis.tls_ca_file", r.TLSCAFile)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s: want PEM certificates, have none", c.Place("redis.tls_ca_file"), r.TLSCAFile)
		}
	}
	if r.TLSCertFile != "" {
		cert, err := c.read("redis.tls_cert_file", r.TLSCertFile)
		if err != nil {
			return nil, err
		}
		key, err := c.read("redis.tls_key_file", r.TLSKeyFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %s with %s: %w", c.Place("redis.tls_cert_file"), r.TLSCertFile, r.TLSKeyFile, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

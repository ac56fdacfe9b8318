// Package ext is what Traefik's module asks for under this name: types that editions of Traefik extend. Here they add nothing.
package ext

// HTTP extends the HTTP configuration.
type HTTP struct{}

// Router extends a router.
type Router struct{}

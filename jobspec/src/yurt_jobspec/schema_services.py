"""The tables of services and of Consul's service mesh; `schema` documents their format."""

TABLE = {
    "Service": """
        name                                Name                            string
        tags                                Tags                            strings
        canary_tags                         CanaryTags                      strings
        enable_tag_override                 EnableTagOverride               bool
        port                                PortLabel                       string
        address_mode                        AddressMode                     string
        address                             Address                         string
        check                               Checks                          blocks ServiceCheck
        check_restart                       CheckRestart                    block CheckRestart
        connect                             Connect                         block ConsulConnect
        meta                                Meta                            map
        canary_meta                         CanaryMeta                      map
        tagged_addresses                    TaggedAddresses                 map
        task                                TaskName                        string
        on_update                           OnUpdate                        string
        identity                            Identity                        block WorkloadIdentity
        weights                             Weights                         block ServiceWeights
        provider                            Provider                        string
        cluster                             Cluster                         string
        kind                                Kind                            string
    """,
    "ServiceCheck": """
        name                                Name                            string
        type                                Type                            string
        command                             Command                         string
        args                                Args                            strings
        path                                Path                            string
        protocol                            Protocol                        string
        port                                PortLabel                       string
        expose                              Expose                          bool
        address_mode                        AddressMode                     string
        advertise                           Advertise                       string
        interval                            Interval                        duration
        timeout                             Timeout                         duration
        initial_status                      InitialStatus                   string
        notes                               Notes                           string
        tls_server_name                     TLSServerName                   string
        tls_skip_verify                     TLSSkipVerify                   bool
        header                              Header                          multimap
        method                              Method                          string
        check_restart                       CheckRestart                    block CheckRestart
        grpc_service                        GRPCService                     string
        grpc_use_tls                        GRPCUseTLS                      bool
        task                                TaskName                        string
        success_before_passing              SuccessBeforePassing            int
        failures_before_critical            FailuresBeforeCritical          int
        failures_before_warning             FailuresBeforeWarning           int
        body                                Body                            string
        on_update                           OnUpdate                        string
    """,
    "CheckRestart": """
        limit                               Limit                           int
        grace                               Grace                           duration?
        ignore_warnings                     IgnoreWarnings                  bool
    """,
    "ConsulConnect": """
        native                              Native                          bool
        gateway                             Gateway                         block ConsulGateway
        sidecar_service                     SidecarService                  block ConsulSidecarService
        sidecar_task                        SidecarTask                     block SidecarTask
    """,
    "ConsulGateway": """
        proxy                               Proxy                           block ConsulGatewayProxy
        ingress                             Ingress                         block ConsulIngressConfigEntry
        terminating                         Terminating                     block ConsulTerminatingConfigEntry
        mesh                                Mesh                            block ConsulMeshConfigEntry
    """,
    "ConsulGatewayProxy": """
        connect_timeout                     ConnectTimeout                  duration?
        envoy_gateway_bind_tagged_addresses EnvoyGatewayBindTaggedAddresses bool
        envoy_gateway_bind_addresses        EnvoyGatewayBindAddresses       keyed ConsulGatewayBindAddress
        envoy_gateway_no_default_bind       EnvoyGatewayNoDefaultBind       bool
        envoy_dns_discovery_type            EnvoyDNSDiscoveryType           string
        config                              Config                          free
    """,
    "ConsulGatewayBindAddress": """
        name                                Name                            label
        address                             Address                         string
        port                                Port                            int
    """,
    "ConsulIngressConfigEntry": """
        tls                                 TLS                             block ConsulGatewayTLSConfig
        listener                            Listeners                       blocks ConsulIngressListener
    """,
    "ConsulGatewayTLSConfig": """
        enabled                             Enabled                         bool
        tls_min_version                     TLSMinVersion                   string
        tls_max_version                     TLSMaxVersion                   string
        cipher_suites                       CipherSuites                    strings
        sds                                 SDS                             block ConsulGatewayTLSSDSConfig
    """,
    "ConsulGatewayTLSSDSConfig": """
        cluster_name                        ClusterName                     string
        cert_resource                       CertResource                    string
    """,
    "ConsulIngressListener": """
        port                                Port                            int
        protocol                            Protocol                        string
        service                             Services                        blocks ConsulIngressService
    """,
    "ConsulIngressService": """
        name                                Name                            string
        hosts                               Hosts                           strings
        tls                                 TLS                             block ConsulGatewayTLSConfig
        request_headers                     RequestHeaders                  block ConsulHTTPHeaderModifiers
        response_headers                    ResponseHeaders                 block ConsulHTTPHeaderModifiers
        max_connections                     MaxConnections                  uint32?
        max_pending_requests                MaxPendingRequests              uint32?
        max_concurrent_requests             MaxConcurrentRequests           uint32?
    """,
    "ConsulHTTPHeaderModifiers": """
        add                                 Add                             map
        set                                 Set                             map
        remove                              Remove                          strings
    """,
    "ConsulTerminatingConfigEntry": """
        service                             Services                        blocks ConsulLinkedService
    """,
    "ConsulLinkedService": """
        name                                Name                            string
        ca_file                             CAFile                          string
        cert_file                           CertFile                        string
        key_file                            KeyFile                         string
        sni                                 SNI                             string
    """,
    "ConsulMeshConfigEntry": """
    """,
    "ConsulSidecarService": """
        tags                                Tags                            strings
        port                                Port                            string
        proxy                               Proxy                           block ConsulProxy
        disable_default_tcp_check           DisableDefaultTCPCheck          bool
        meta                                Meta                            map
    """,
    "ConsulProxy": """
        local_service_address               LocalServiceAddress             string
        local_service_port                  LocalServicePort                int
        expose                              Expose                          block ConsulExposeConfig
        upstreams                           Upstreams                       blocks ConsulUpstream
        transparent_proxy                   TransparentProxy                block ConsulTransparentProxy
        config                              Config                          free
    """,
    "ConsulExposeConfig": """
        path                                Paths                           blocks ConsulExposePath
    """,
    "ConsulExposePath": """
        path                                Path                            string
        protocol                            Protocol                        string
        local_path_port                     LocalPathPort                   int
        listener_port                       ListenerPort                    string
    """,
    "ConsulUpstream": """
        destination_name                    DestinationName                 string
        destination_namespace               DestinationNamespace            string
        destination_peer                    DestinationPeer                 string
        destination_partition               DestinationPartition            string
        destination_type                    DestinationType                 string
        local_bind_port                     LocalBindPort                   int
        datacenter                          Datacenter                      string
        local_bind_address                  LocalBindAddress                string
        local_bind_socket_path              LocalBindSocketPath             string
        local_bind_socket_mode              LocalBindSocketMode             string
        mesh_gateway                        MeshGateway                     block ConsulMeshGateway
        config                              Config                          free
    """,
    "ConsulMeshGateway": """
        mode                                Mode                            string
    """,
    "ConsulTransparentProxy": """
        uid                                 UID                             string
        outbound_port                       OutboundPort                    uint16
        exclude_inbound_ports               ExcludeInboundPorts             strings
        exclude_outbound_ports              ExcludeOutboundPorts            ints
        exclude_outbound_cidrs              ExcludeOutboundCIDRs            strings
        exclude_uids                        ExcludeUIDs                     strings
        no_dns                              NoDNS                           bool
    """,
    "SidecarTask": """
        name                                Name                            string
        driver                              Driver                          string
        user                                User                            string
        config                              Config                          free
        env                                 Env                             map
        resources                           Resources                       block Resources
        meta                                Meta                            map
        kill_timeout                        KillTimeout                     duration?
        logs                                LogConfig                       block LogConfig
        shutdown_delay                      ShutdownDelay                   duration?
        kill_signal                         KillSignal                      string
        volume_mount                        VolumeMounts                    blocks VolumeMount
        identity                            Identities                      blocks WorkloadIdentity
    """,
    "ServiceWeights": """
        passing                             Passing                         int
        warning                             Warning                         int
    """,
    "Consul": """
        namespace                           Namespace                       string
        cluster                             Cluster                         string
        partition                           Partition                       string
    """,
}

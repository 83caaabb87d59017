package httpapi
import ("testing";"context";"github.com/getkin/kin-openapi/openapi3";"git.yuntuo.hk/k2safe/orbit/api")
func TestZZ(t *testing.T){ l:=openapi3.NewLoader(); d,err:=l.LoadFromData(api.OpenAPI); if err!=nil{t.Fatal(err)}; if err:=d.Validate(context.Background()); err!=nil{t.Fatal(err)}}
